#include "migration/rebalance_work.h"

#include <spdlog/spdlog.h>

#include <exception>

#include "migration/mapped_scan.h"
#include "migration/mover.h"
#include "migration/operation.h"

namespace collegedb::migration {
namespace {

using Time = DonorLimit::Clock;
using std::chrono::milliseconds;

constexpr int kMostPerDonor = 4;
constexpr int kMostTries = 20;          // of a batch that was not to be had for now
constexpr int kMostReadFailures = 5;    // in a row
constexpr int kHopeless = 24;           // refusals in a row: the reason is not the keys'
constexpr std::size_t kReadAhead = 16;  // batches per donor
constexpr double kLongStallMs = 100;
constexpr milliseconds kIdle{50};
constexpr milliseconds kRetry{1000};

SessionOptions scan_options() {
  SessionOptions options;
  options.application_name = "collegedb rebalance";
  options.statement_timeout = milliseconds{0};
  options.dies_with_client = true;
  return options;
}

enum class Verdict { kPaused, kMissed, kClaimed, kUnavailable, kFinal, kRefused };

Verdict verdict_of(const SqlError& error) {
  const std::string_view state = error.sqlstate;
  const auto is_one_of = [&](std::initializer_list<std::string_view> heads) {
    return std::any_of(heads.begin(), heads.end(),
                       [&](std::string_view head) { return state.starts_with(head); });
  };
  if (error.message.starts_with(name_of(ErrorCode::kMovesPaused))) return Verdict::kPaused;
  // Recovery finishes what has an unknown outcome; an operator has cancelled the other.
  if (state == "08007" || error.message.find(kMoveCancelled) != std::string::npos) {
    return Verdict::kFinal;
  }
  if (state == kKeyIsMoving) return Verdict::kClaimed;
  if (is_one_of({"55P03", "57014", "40", "53"})) return Verdict::kMissed;
  if (is_one_of({"08", "57P"})) return Verdict::kUnavailable;
  return Verdict::kRefused;
}

}  // namespace

RebalanceWork::RebalanceWork(const RebalanceField& field, const RebalanceRequest& request,
                             std::string id, Runner* runner, const RunnerOptions* journal,
                             int concurrency)
    : request_(request),
      runner_(runner),
      journal_(journal),
      per_donor_(std::clamp(concurrency, 1, kMostPerDonor)) {
  result_.id = std::move(id);
  if (request.max_keys) left_ = *request.max_keys;
  for (const ShardConfig& source : field.sources) {
    auto donor = std::make_unique<Donor>(source, per_donor_);
    for (const auto& [group, tables] : field.groups) {
      auto rows = std::make_unique<MisplacedScan>(field.epochs, group, tables);
      if (journal == nullptr || !field.epochs.leaves(source.name)) {
        donor->scans.push_back({group, std::move(rows)});
        continue;
      }
      donor->scans.push_back(
          {group, std::make_unique<MappedScan>(field.epochs, group, source.name, *journal)});
      donor->scans.push_back(
          {group, std::make_unique<UnmappedScan>(std::move(rows), group, *journal)});
    }
    donor->exhausted = donor->scans.empty();
    donors_.push_back(std::move(donor));
  }
  // The rate is what a donor is asked for in all.
  if (runner != nullptr && runner->options().limits.copy_rate > 0) {
    const auto share = static_cast<std::uint64_t>(per_donor_);
    copy_rate_ = std::max<std::uint64_t>(1, runner->options().limits.copy_rate / share);
  }
}

void RebalanceWork::run() noexcept {
  Lock lock(mutex_);
  while (!stopped_ && !is_done()) {
    if (paused_ || !step(lock)) changed_.wait_for(lock, kIdle);
  }
  changed_.notify_all();
}

void RebalanceWork::pause(bool paused) {
  const std::lock_guard lock(mutex_);
  paused_ = paused;
  changed_.notify_all();
}

void RebalanceWork::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

bool RebalanceWork::wait(milliseconds span) {
  Lock lock(mutex_);
  return changed_.wait_for(lock, span, [this] { return is_done(); });
}

RebalanceResult RebalanceWork::result() {
  const std::lock_guard lock(mutex_);
  RebalanceResult out = result_;
  for (const auto& [route, keys] : plan_) {
    const auto& [group, source, destination] = route;
    out.plan.push_back(
        {.group = group, .source = source, .destination = destination, .keys = keys});
  }
  return out;
}

bool RebalanceWork::is_done() const {
  return std::all_of(donors_.begin(), donors_.end(), [](const auto& donor) {
    return donor->exhausted && !donor->reading && donor->active == 0 && donor->waiting.empty();
  });
}

// Donors in turn; moves come before reading, so that little is read ahead.
bool RebalanceWork::step(Lock& lock) {
  const auto now = Time::now();
  for (std::size_t i = 0; i < donors_.size(); ++i) {
    Donor& donor = *donors_[(turn_ + i) % donors_.size()];
    if (donor.limit.resting(now) || donor.active >= donor.limit.limit()) continue;
    const auto found = startable(donor);
    if (found == donor.waiting.end()) continue;
    RebalanceBatch batch = std::move(found->batch);
    donor.waiting.erase(found);
    turn_ += i + 1;
    move(lock, donor, std::move(batch));
    return true;
  }
  for (const auto& donor : donors_) {
    if (donor->exhausted || donor->reading || donor->limit.resting(now)) continue;
    if (donor->waiting.size() >= kReadAhead) continue;
    read(lock, *donor);
    return true;
  }
  return false;
}

// Two operations on one bucket would only wait for each other.
std::deque<Donor::Waiting>::iterator RebalanceWork::startable(Donor& donor) const {
  const auto now = Time::now();
  const auto is_free = [this](const RebalanceBatch& batch) {
    return std::none_of(batch.buckets.begin(), batch.buckets.end(), [&](std::int32_t bucket) {
      return fenced_.contains({batch.group, bucket});
    });
  };
  return std::find_if(donor.waiting.begin(), donor.waiting.end(), [&](const Donor::Waiting& each) {
    return each.not_before <= now && is_free(each.batch);
  });
}

// ---- Reading --------------------------------------------------------------------------------

void RebalanceWork::read(Lock& lock, Donor& donor) {
  if (left_ == 0) {
    donor.scans.resize(1);
    end_scan(donor);
    return;
  }
  const std::string group = donor.scans.front().group;
  KeyScan& scan = *donor.scans.front().scan;
  const std::int64_t examined = scan.examined();
  const std::int64_t agreed = scan.agreed();
  donor.reading = true;
  lock.unlock();
  std::vector<Misplaced> found;
  std::set<std::string> pinned;
  std::string error;
  try {
    if (!donor.session) {
      donor.session = std::make_unique<ControlSession>(donor.shard, scan_options());
    }
    found = scan.next(*donor.session);
    if (!found.empty() && journal_ != nullptr) {
      std::vector<std::string> keys;
      keys.reserve(found.size());
      for (const Misplaced& each : found) keys.push_back(each.key);
      for (std::string& key : open_journal(*journal_)->pinned(group, keys, donor.shard.name)) {
        pinned.insert(std::move(key));
      }
    }
  } catch (const std::exception& failure) {
    error = failure.what();
    donor.session.reset();
    scan.restart();
  }
  lock.lock();
  donor.reading = false;
  result_.examined += scan.examined() - examined;
  result_.agreed += scan.agreed() - agreed;
  if (error.empty()) {
    donor.read_failures = 0;
    take_in(donor, std::move(found), pinned);
  } else if (++donor.read_failures < kMostReadFailures) {
    donor.limit.congested(Time::now());
  } else {
    give_up(donor, {.group = group, .destination = {}, .keys = {}, .buckets = {}}, error);
    end_scan(donor);
  }
  changed_.notify_all();
}

void RebalanceWork::take_in(Donor& donor, std::vector<Misplaced> found,
                            const std::set<std::string>& pinned) {
  if (found.empty()) {
    end_scan(donor);
    return;
  }
  const std::string group = donor.scans.front().group;
  if (!donor.batcher) donor.batcher = std::make_unique<Batcher>(group);
  for (Misplaced& each : found) {
    if (pinned.contains(each.key)) {
      ++result_.agreed;
      continue;
    }
    if (request_.destination && *request_.destination != each.destination) continue;
    if (left_ == 0) break;
    --left_;
    ++plan_[{group, donor.shard.name, each.destination}];
    if (runner_ == nullptr) {
      ++result_.moved;
    } else {
      donor.batcher->add(std::move(each));
    }
  }
  if (left_ == 0) {
    donor.scans.resize(1);
    end_scan(donor);
    return;
  }
  for (RebalanceBatch& batch : donor.batcher->ready) again(donor, std::move(batch), {});
  donor.batcher->ready.clear();
}

void RebalanceWork::end_scan(Donor& donor) {
  if (donor.batcher) {
    donor.batcher->finish();
    for (RebalanceBatch& batch : donor.batcher->ready) again(donor, std::move(batch), {});
    donor.batcher.reset();
  }
  donor.scans.pop_front();
  donor.exhausted = donor.scans.empty();
  if (donor.exhausted) donor.session.reset();
}

// ---- Moving ---------------------------------------------------------------------------------

void RebalanceWork::move(Lock& lock, Donor& donor, RebalanceBatch batch) {
  Hope& hope = hope_[{batch.group, donor.shard.name, batch.destination}];
  if (hope.refusals >= kHopeless) {
    give_up(donor, batch, hope.error);
    return;
  }
  for (const std::int32_t bucket : batch.buckets) fenced_.insert({batch.group, bucket});
  ++donor.active;
  lock.unlock();
  Result<MoveResult> moved = make_error("XX000", "");
  std::vector<std::string> left;
  try {
    // Of several buckets only the first is waited for.
    moved = runner_->reassign_keys(
        batch.group, batch.keys, donor.shard.name, batch.destination,
        {.rebalance = result_.id, .copy_rate = copy_rate_, .patient = batch.buckets.size() == 1});
    if (!moved) left = still_there(donor, batch);
  } catch (const std::exception& failure) {
    moved = make_error("XX000", failure.what());
    left = batch.keys;
  }
  lock.lock();
  --donor.active;
  for (const std::int32_t bucket : batch.buckets) fenced_.erase({batch.group, bucket});
  if (moved) {
    hope.refusals = 0;
    result_.moved += static_cast<std::int64_t>(batch.keys.size());
    if (moved->write_stall_ms.value_or(0) > kLongStallMs) {
      donor.limit.congested(Time::now());
    } else {
      donor.limit.smooth();
    }
  } else if (left.size() < batch.keys.size()) {
    // Somebody else has moved or pinned some of them since they were read.
    result_.agreed += static_cast<std::int64_t>(batch.keys.size() - left.size());
    if (!left.empty()) again(donor, narrowed(batch, std::move(left)), {});
  } else {
    settle(donor, batch, moved.error());
  }
  changed_.notify_all();
}

void RebalanceWork::settle(Donor& donor, const RebalanceBatch& batch, const SqlError& error) {
  Hope& hope = hope_[{batch.group, donor.shard.name, batch.destination}];
  RebalanceBatch next = batch;
  const Verdict verdict = verdict_of(error);
  switch (verdict) {
    case Verdict::kPaused:
      paused_ = true;
      again(donor, std::move(next), {});
      return;
    case Verdict::kFinal:
      give_up(donor, batch, error.message);
      return;
    case Verdict::kMissed:
      if (batch.buckets.size() > 1) {
        for (RebalanceBatch& part : split_buckets(batch)) again(donor, std::move(part), {});
        return;
      }
      donor.limit.congested(Time::now());
      [[fallthrough]];
    case Verdict::kClaimed:
    case Verdict::kUnavailable:
      if (++next.tries >= kMostTries) {
        give_up(donor, batch, error.message);
      } else {
        again(donor, std::move(next), kRetry);
      }
      return;
    case Verdict::kRefused:
      break;
  }
  ++hope.refusals;
  hope.error = error.message;
  if (batch.keys.size() == 1) {
    give_up(donor, batch, error.message);
    return;
  }
  // One key's trouble is not its neighbours'.
  for (RebalanceBatch& half : split_in_half(batch)) again(donor, std::move(half), {});
}

void RebalanceWork::again(Donor& donor, RebalanceBatch batch, milliseconds delay) {
  donor.waiting.push_back({std::move(batch), Time::now() + delay});
}

void RebalanceWork::give_up(const Donor& donor, const RebalanceBatch& batch,
                            const std::string& error) {
  const auto keys = static_cast<std::int64_t>(batch.keys.size());
  result_.failed += keys;
  spdlog::warn("rebalance {}: {} keys of {} stay on {} instead of {}: {}", result_.id, keys,
               batch.group, donor.shard.name, batch.destination, error);
  if (result_.failures.size() >= kMaxFailures) return;
  result_.failures.push_back({.share = {.group = batch.group,
                                        .source = donor.shard.name,
                                        .destination = batch.destination,
                                        .keys = keys},
                              .key = batch.keys.empty() ? std::string{} : batch.keys.front(),
                              .error = error});
}

// Keys without a tombstone on the donor that nobody has pinned meanwhile; all of them when that
// cannot be found out now.
std::vector<std::string> RebalanceWork::still_there(const Donor& donor,
                                                    const RebalanceBatch& batch) const {
  try {
    std::set<std::string> gone;
    for (std::string& key :
         open_journal(*journal_)->pinned(batch.group, batch.keys, donor.shard.name)) {
      gone.insert(std::move(key));
    }
    auto session = journal_->sessions->take(donor.shard, {});
    const Rows rows = session->run(
        "SELECT r.key FROM unnest($3::pg_catalog.text[]) AS k CROSS JOIN LATERAL"
        " (SELECT key FROM collegedb.retired WHERE scope = $1 AND grp = $2 AND key = k LIMIT 1)"
        " AS r",
        {journal_->scope, batch.group, array_text(batch.keys)});
    for (int i = 0; i < rows.size(); ++i) gone.insert(rows.text(i, 0));
    journal_->sessions->give_back(std::move(session));
    std::vector<std::string> out;
    for (const std::string& key : batch.keys) {
      if (!gone.contains(key)) out.push_back(key);
    }
    return out;
  } catch (const std::exception&) {
    return batch.keys;
  }
}

}  // namespace collegedb::migration
