// Which keys on a shard belong to another one, found by the shard itself. Reads only. Background
// threads only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "migration/control_session.h"
#include "migration/placed_epochs.h"
#include "migration/table_catalog.h"

namespace collegedb::migration {

struct Misplaced {
  std::int32_t bucket = 0;  // of the gate
  std::string destination{};
  std::string key{};
  std::int64_t rows = 1;  // of all tables of the group, here
};

// Keys of one group that are to leave one shard, in order of bucket. One thread at a time.
class KeyScan {
 public:
  virtual ~KeyScan() = default;
  // Up to some thousand more; empty at the end. Throws SqlFailure. REQUIRES: the session is one on
  // that shard, is idle, is the one of the call before unless restart() was called, and is used by
  // nobody else meanwhile.
  [[nodiscard]] virtual std::vector<Misplaced> next(ControlSession& session) = 0;
  // After a failure: what was not told of yet is looked for again, in another session.
  virtual void restart() = 0;
  // Distinct keys looked at so far, and of these the ones that are in their place.
  [[nodiscard]] virtual std::int64_t examined() const = 0;
  [[nodiscard]] virtual std::int64_t agreed() const = 0;
};

// Keys of one group with rows on the session's shard whose owner under the newest active epoch is
// another shard, in order of bucket. Buckets are looked at in slices, so that neither side holds
// more than some million keys, and no snapshot is older than one look at the tables: between the
// calls no transaction is open. A key that comes, goes or moves meanwhile may be missed or be one
// too many.
class MisplacedScan final : public KeyScan {
 public:
  // `tables` of one group; those that are not there are passed over. REQUIRES: `epochs` is not
  // empty and outlives it.
  MisplacedScan(const PlacedEpochs& epochs, std::string group, std::vector<RegisteredTable> tables);

  [[nodiscard]] std::vector<Misplaced> next(ControlSession& session) override;
  // The slice at hand is looked at once more.
  void restart() override;
  // Of the slices begun.
  [[nodiscard]] std::int64_t examined() const override { return examined_ + in_slice_; }
  [[nodiscard]] std::int64_t agreed() const override { return agreed_ + agreed_in_slice_; }

 private:
  void measure();
  void open_slice();
  void close_slice();
  [[nodiscard]] std::string slice_sql() const;

  const PlacedEpochs& epochs_;
  std::string group_;
  std::vector<RegisteredTable> tables_;
  ControlSession* session_ = nullptr;
  bool measured_ = false;
  bool open_ = false;
  std::int32_t first_ = 0;  // bucket the slice begins with
  std::int32_t width_ = 0;  // of a slice, in buckets
  std::int64_t examined_ = 0;
  std::int64_t agreed_ = 0;
  std::int64_t in_slice_ = 0;
  std::int64_t agreed_in_slice_ = 0;
};

}  // namespace collegedb::migration
