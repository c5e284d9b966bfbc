// One byte stream: a TCP or unix socket, in clear or under TLS. Non-blocking attempts first
// (`*_now`), suspending forms for when they would block. Exactly one reader and one writer.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "proxy/net/asio.h"
#include "proxy/wire/error.h"

namespace collegedb::net {

enum class IoStatus : std::uint8_t {
  kDone,        // `n` bytes moved, n > 0
  kWouldBlock,  // wait for `direction`, then try again
  kClosed,      // end of stream, reset or a TLS failure; `reason` says which
  kAborted,     // cancel() was called while suspended; nothing was lost
};

struct IoResult {
  IoStatus status = IoStatus::kDone;
  std::size_t n = 0;
  Socket::wait_type direction = Socket::wait_read;
  // kClosed: static text or empty for a plain end of stream.
  IoError error;
};

class Stream {
 public:
  // `socket` is open; it becomes non-blocking.
  explicit Stream(Socket socket);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  [[nodiscard]] IoResult read_now(std::span<char> room);
  [[nodiscard]] IoResult write_now(std::string_view bytes);
  // Suspends until bytes arrive, the stream ends or cancel().
  Task<IoResult> read(std::span<char> room);
  // Suspends until a refused write_now can go on.
  Task<IoResult> wait(Socket::wait_type direction);
  // Returns when either direction is ready.
  Task<IoResult> wait_any();
  // Writes everything, or says why not.
  Task<IoResult> write_all(std::string_view bytes);

  // REQUIRES no buffered plaintext. `host` (client side only): the name to send (SNI).
  Task<Result<void>> handshake_server(SSL_CTX* context);
  Task<Result<void>> handshake_client(SSL_CTX* context, std::string host, bool verify_host);
  [[nodiscard]] bool is_tls() const { return tls_ != nullptr; }
  // Of the verified peer certificate: subject CN; nullopt without one or with a NUL in it.
  [[nodiscard]] std::optional<std::string> peer_common_name() const;

  // Looks without consuming: the peer has closed, or (`stray` true) has sent bytes.
  struct Peek {
    bool gone = false;
    bool stray = false;
  };
  [[nodiscard]] Peek peek();

  // Wakes suspended operations with kAborted.
  void cancel();
  // Says goodbye as far as that works without waiting, then closes. Idempotent.
  void close();
  // Closes at once; suspended operations end with kAborted.
  void abort();
  [[nodiscard]] bool is_open() const { return socket_.is_open(); }
  [[nodiscard]] Socket& socket() { return socket_; }

 private:
  struct FreeTls {
    void operator()(SSL* tls) const { SSL_free(tls); }
  };

  Result<void> attach_tls(SSL_CTX* context);
  Task<Result<void>> handshake();
  IoResult tls_result(int outcome, std::size_t n);

  Socket socket_;
  std::unique_ptr<SSL, FreeTls> tls_;
  bool tls_broken_ = false;
};

}  // namespace collegedb::net
