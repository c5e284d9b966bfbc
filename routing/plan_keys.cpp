// A key is taken only from conditions that every row that matters must satisfy, and only for the
// tables such a condition restricts (Conjunct::restricts). Equality between the key columns of two
// tables of the group hands a key on from one to the other.
#include <algorithm>

#include "routing/planner.h"

namespace collegedb::routing {
namespace {

using parser::ColumnRef;
using parser::Conjunct;
using parser::Value;

// key column IN (values), as one condition on one table. `type` is that of the column compared.
struct Term {
  const std::vector<Value>* values = nullptr;
  KeyType type = KeyType::kText;
};

// More terms of one table than this add nothing.
constexpr std::size_t kMaxTerms = 8;
using Terms = std::vector<std::vector<Term>>;  // parallel to the tables

bool same_value(const Value& a, const Value& b) {
  return a.kind == b.kind && a.text == b.text && a.param == b.param && a.cast == b.cast;
}

bool same_term(const Term& a, const Term& b) {
  return a.type == b.type && std::equal(a.values->begin(), a.values->end(), b.values->begin(),
                                        b.values->end(), same_value);
}

bool is_single(const Term& term) {
  return term.values->size() == 1;
}

// Rows of one key in one column have the same canonical text in the other when they are equal.
bool is_number(KeyType type) {
  return type == KeyType::kInt2 || type == KeyType::kInt4 || type == KeyType::kInt8 ||
         type == KeyType::kNumeric0;
}
bool hands_on(KeyType from, KeyType to) {
  const auto text = [](KeyType t) { return t == KeyType::kText || t == KeyType::kVarchar; };
  return from == to || (is_number(from) && is_number(to)) || (text(from) && text(to));
}

class KeyFinder {
 public:
  explicit KeyFinder(const Planner& planner)
      : planner_(planner), terms_(planner.statement().tables.size()) {}

  Terms run() {
    for (const Conjunct& conjunct : planner_.statement().conjuncts) {
      if (conjunct.kind == Conjunct::Kind::kColumns) {
        connect(conjunct);
      } else {
        seed(conjunct);
      }
    }
    while (hand_on()) {
    }
    return std::move(terms_);
  }

 private:
  // True when `ref` is the key column of that table. An unqualified name is the key column of a
  // table of its own level: another column of that name there would make it ambiguous (or is equal
  // to it by USING).
  bool is_key(const ColumnRef& ref, std::size_t table) const {
    if (!planner_.is_sharded(table) || ref.column != planner_.tables[table]->key_column) {
      return false;
    }
    if (ref.table >= 0) return static_cast<std::size_t>(ref.table) == table;
    return ref.level == planner_.statement().tables[table].level;
  }

  static bool restricts(const Conjunct& conjunct, std::size_t table) {
    return std::find(conjunct.restricts.begin(), conjunct.restricts.end(),
                     static_cast<int>(table)) != conjunct.restricts.end();
  }

  bool add(std::size_t table, const Term& term) {
    std::vector<Term>& terms = terms_[table];
    const bool known = std::any_of(terms.begin(), terms.end(),
                                   [&](const Term& other) { return same_term(term, other); });
    if (known || terms.size() == kMaxTerms) return false;
    terms.push_back(term);
    return true;
  }

  void seed(const Conjunct& conjunct) {
    if (conjunct.kind == Conjunct::Kind::kAnyArray) return;
    const auto unusable = [](const Value& value) {
      return value.kind == Value::Kind::kOpaque || value.kind == Value::Kind::kDefault;
    };
    if (conjunct.values.empty() ||
        std::any_of(conjunct.values.begin(), conjunct.values.end(), unusable)) {
      return;
    }
    for (std::size_t i = 0; i < terms_.size(); ++i) {
      if (is_key(conjunct.column, i) && restricts(conjunct, i)) {
        add(i, {&conjunct.values, planner_.tables[i]->key_type});
      }
    }
  }

  std::vector<std::size_t> tables_of(const ColumnRef& ref) const {
    std::vector<std::size_t> out;
    for (std::size_t i = 0; i < terms_.size(); ++i) {
      if (is_key(ref, i)) out.push_back(i);
    }
    return out;
  }

  void connect(const Conjunct& conjunct) {
    const std::vector<std::size_t> left = tables_of(conjunct.column);
    if (left.empty()) return;
    for (const std::size_t j : tables_of(conjunct.other)) {
      for (const std::size_t i : left) {
        if (i == j) continue;
        if (restricts(conjunct, i)) links_.push_back({j, i});
        if (restricts(conjunct, j)) links_.push_back({i, j});
      }
    }
  }

  bool hand_on() {
    bool changed = false;
    for (const Link& link : links_) {
      const KeyType to = planner_.tables[link.to]->key_type;
      if (!hands_on(planner_.tables[link.from]->key_type, to)) continue;
      for (const Term& term : terms_[link.from]) changed |= add(link.to, term);
    }
    return changed;
  }

  // Each row of `to` that matters equals a row of `from` that matters in the key.
  struct Link {
    std::size_t from;
    std::size_t to;
  };

  const Planner& planner_;
  Terms terms_;
  std::vector<Link> links_;
};

void append(Planner& planner, const Term& term) {
  for (const Value& value : *term.values) {
    planner.plan.keys.push_back(key_source(planner, value, term.type, false));
  }
}

// The tables that must be restricted.
std::vector<std::size_t> keyed_tables(const Planner& planner) {
  std::vector<std::size_t> out;
  const auto target = planner.target();
  for (std::size_t i = 0; i < planner.tables.size(); ++i) {
    const bool inserted = planner.kind == parser::StatementKind::kInsert && target == i;
    if (planner.is_sharded(i) && !inserted) out.push_back(i);
  }
  return out;
}

// One key that all tables share is enough, whatever else restricts them.
const Term* common_term(const Terms& terms, const std::vector<std::size_t>& tables) {
  for (const Term& term : terms[tables.front()]) {
    const bool shared = std::all_of(tables.begin(), tables.end(), [&](std::size_t table) {
      return std::any_of(terms[table].begin(), terms[table].end(),
                         [&](const Term& other) { return same_term(term, other); });
    });
    if (shared && is_single(term)) return &term;
  }
  return nullptr;
}

}  // namespace

KeySource key_source(const Planner& planner, const Value& value, KeyType type, bool assigned) {
  KeySource source;
  source.value = value;
  source.type = type;
  source.assigned = assigned;
  const auto& repeated = planner.statement().repeated_params;
  source.repeated = value.kind == Value::Kind::kParam &&
                    std::find(repeated.begin(), repeated.end(), value.param) != repeated.end();
  return source;
}

Restriction find_keys(Planner& planner) {
  const std::vector<std::size_t> tables = keyed_tables(planner);
  if (tables.empty()) return {.complete = true};
  const Terms terms = KeyFinder(planner).run();
  for (const std::size_t table : tables) {
    if (terms[table].empty()) return {.unrestricted = table};
  }
  if (const Term* term = common_term(terms, tables)) {
    append(planner, *term);
    return {.complete = true};
  }
  const bool alone = tables.size() == 1 && planner.sharded == 1;
  if (alone) {
    append(planner, terms[tables.front()].front());
    planner.plan.many_keys = true;
    return {.complete = true};
  }
  std::vector<const Term*> chosen;
  for (const std::size_t table : tables) {
    const auto found = std::find_if(terms[table].begin(), terms[table].end(), is_single);
    if (found == terms[table].end()) return {.unrestricted = table, .several = true};
    const bool known = std::any_of(chosen.begin(), chosen.end(),
                                   [&](const Term* other) { return same_term(*found, *other); });
    if (!known) chosen.push_back(&*found);
  }
  for (const Term* term : chosen) append(planner, *term);
  return {.complete = true};
}

}  // namespace collegedb::routing
