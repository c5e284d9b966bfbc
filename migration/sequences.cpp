#include "migration/sequences.h"

#include <algorithm>
#include <map>

namespace collegedb::migration {
namespace {

// Sequences a column default or an identity of one of the tables in $1 draws from.
constexpr std::string_view kSequences =
    "SELECT DISTINCT u.name, q.seq::pg_catalog.regclass::pg_catalog.text, s.seqincrement,"
    " s.seqcycle FROM pg_catalog.unnest($1::pg_catalog.text[]) u (name) JOIN ("
    " SELECT a.adrelid AS rel, d.refobjid AS seq FROM pg_catalog.pg_attrdef a"
    " JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass"
    " AND d.objid = a.oid AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass"
    " UNION SELECT d.refobjid, d.objid FROM pg_catalog.pg_depend d"
    " WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.deptype = 'i'"
    " AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass"
    ") q ON q.rel = pg_catalog.to_regclass(u.name)"
    " JOIN pg_catalog.pg_sequence s ON s.seqrelid = q.seq ORDER BY 1, 2";

struct Sequence {
  std::string table;
  std::string name;
  std::int64_t increment = 1;
  bool cycles = false;
};

std::vector<Sequence> sequences_of(ControlSession& session,
                                   const std::vector<std::string>& tables) {
  const Rows rows = session.run(kSequences, {array_text(tables)});
  std::vector<Sequence> out;
  for (int i = 0; i < rows.size(); ++i) {
    out.push_back({rows.text(i, 0), rows.text(i, 1), rows.int8(i, 2), rows.boolean(i, 3)});
  }
  return out;
}

void refuse_unfit(ControlSession& session, const Sequence& sequence) {
  if (sequence.increment > 0 && !sequence.cycles) {
    return;
  }
  throw SqlFailure(make_error("0A000",
                              "sequence " + sequence.name + " of table " + sequence.table +
                                  " cannot be shared out over shards",
                              "It must be ascending and without CYCLE."),
                   session.shard());
}

// Smallest number above all the sequence has given out.
std::int64_t next_of(ControlSession& session, const std::string& sequence) {
  return session
      .run("SELECT CASE WHEN is_called THEN last_value + 1 ELSE last_value END FROM " + sequence)
      .int8(0, 0);
}

std::vector<std::string> sharded_names(std::span<const RegisteredTable> tables) {
  std::vector<std::string> names;
  for (const RegisteredTable& table : tables) {
    if (table.kind == "sharded") {
      names.push_back(table.name.qualified);
    }
  }
  return names;
}

// Its next number is the first of this slot in a whole block that begins at `next` or later.
void restart(ControlSession& session, const Sequence& sequence, std::int64_t next, int slot) {
  const std::int64_t base = (next + kSequenceStride - 2) / kSequenceStride * kSequenceStride;
  session.run("ALTER SEQUENCE " + sequence.name + " INCREMENT BY " +
              std::to_string(kSequenceStride) + " RESTART WITH " + std::to_string(base + slot + 1));
}

void stride(Cluster& shards, const std::vector<int>& slots, const Sequence& sequence) {
  std::int64_t next = 1;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    shards[i].run("LOCK TABLE " + sequence.table + " IN SHARE ROW EXCLUSIVE MODE");
    next = std::max(next, next_of(shards[i], sequence.name));
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    restart(shards[i], sequence, next, slots[i]);
  }
}

}  // namespace

void stride_sequences(Cluster& shards, const std::vector<int>& slots,
                      std::span<const RegisteredTable> tables) {
  if (shards.size() < 2) {
    return;
  }
  const std::vector<std::string> names = sharded_names(tables);
  // By sequence name: one that a single shard lacks stride of is strided anew on all.
  std::map<std::string, Sequence> unstrided;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    for (const Sequence& sequence : sequences_of(shards[i], names)) {
      refuse_unfit(shards[i], sequence);
      if (sequence.increment != kSequenceStride) {
        unstrided.emplace(sequence.name, sequence);
      }
    }
  }
  for (const auto& [name, sequence] : unstrided) {
    stride(shards, slots, sequence);
  }
}

void stride_newcomer(Cluster& shards, const std::vector<int>& slots, std::size_t newcomer,
                     std::span<const RegisteredTable> tables) {
  for (const Sequence& sequence : sequences_of(shards[newcomer], sharded_names(tables))) {
    std::int64_t next = 1;
    for (std::size_t i = 0; i < shards.size(); ++i) {
      next = std::max(next, next_of(shards[i], sequence.name));
    }
    restart(shards[newcomer], sequence, next, slots[newcomer]);
  }
}

std::vector<int> read_slots(ControlSession& journal, const Config& config) {
  std::vector<int> slots;
  for (const ShardConfig& shard : config.shards) {
    const Rows rows =
        journal.run("SELECT slot FROM collegedb.shards WHERE scope = $1 AND shard = $2",
                    {config.journal.scope, shard.name});
    if (rows.empty()) {
      throw SqlFailure(make_error(ErrorCode::kPlacementUnverified,
                                  "shard \"" + shard.name + "\" does not belong to the cluster",
                                  "Add it with collegedb_add_shard."),
                       journal.shard());
    }
    slots.push_back(static_cast<int>(rows.int8(0, 0)));
    if (slots.back() >= kSequenceStride) {
      throw SqlFailure(make_error("54000", "a cluster can have at most " +
                                               std::to_string(kSequenceStride) + " shards"),
                       journal.shard());
    }
  }
  return slots;
}

}  // namespace collegedb::migration
