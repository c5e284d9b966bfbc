// Which keys are to leave a shard that takes no new ones any more, under mapped placement: first
// those the directory has there, with rows or without; then those with rows that it does not have.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "migration/misplaced.h"
#include "migration/runner.h"

namespace collegedb::migration {

class MappedScan final : public KeyScan {
 public:
  // REQUIRES: `epochs` and `journal` outlive it; the epochs say that keys leave the shard.
  MappedScan(const PlacedEpochs& epochs, std::string group, std::string shard,
             const RunnerOptions& journal);

  [[nodiscard]] std::vector<Misplaced> next(ControlSession& session) override;
  void restart() override { journal_session_.reset(); }
  [[nodiscard]] std::int64_t examined() const override { return examined_; }
  [[nodiscard]] std::int64_t agreed() const override { return 0; }

 private:
  void open();
  void count_rows(ControlSession& session, std::vector<Misplaced>& keys) const;

  const PlacedEpochs& epochs_;
  std::string group_;
  std::string shard_;
  const RunnerOptions& journal_;
  std::unique_ptr<ControlSession> journal_session_;  // with a cursor behind the last key
  std::int32_t last_bucket_ = -1;
  std::string last_key_;
  std::int64_t examined_ = 0;
};

class UnmappedScan final : public KeyScan {
 public:
  // `rows`: all keys with rows on the shard. REQUIRES: `journal` outlives it.
  UnmappedScan(std::unique_ptr<KeyScan> rows, std::string group, const RunnerOptions& journal);

  [[nodiscard]] std::vector<Misplaced> next(ControlSession& session) override;
  void restart() override { rows_->restart(); }
  [[nodiscard]] std::int64_t examined() const override { return examined_; }
  [[nodiscard]] std::int64_t agreed() const override { return 0; }

 private:
  std::unique_ptr<KeyScan> rows_;
  std::string group_;
  const RunnerOptions& journal_;
  std::int64_t examined_ = 0;
};

}  // namespace collegedb::migration
