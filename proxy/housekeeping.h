// A background thread that runs one function at a steady interval until it is stopped.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace collegedb {

class Housekeeping {
 public:
  // `round` is called at once and then `interval` after each return; it must not throw.
  Housekeeping(std::chrono::milliseconds interval, std::function<void()> round)
      : interval_(interval), round_(std::move(round)), thread_(&Housekeeping::loop, this) {}
  // Waits for the round that runs.
  ~Housekeeping() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  Housekeeping(const Housekeeping&) = delete;
  Housekeeping& operator=(const Housekeeping&) = delete;

 private:
  void loop() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      lock.unlock();
      round_();
      lock.lock();
      wake_.wait_for(lock, interval_, [this] { return stopping_; });
    }
  }

  std::chrono::milliseconds interval_;
  std::function<void()> round_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace collegedb
