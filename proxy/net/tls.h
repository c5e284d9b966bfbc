// TLS settings of the two legs as ready OpenSSL contexts. Built at start-up; immutable afterwards
// and shared by all workers.
#pragma once

#include <openssl/ssl.h>

#include <memory>

#include "proxy/config.h"
#include "proxy/net/conninfo.h"
#include "proxy/wire/error.h"

namespace collegedb::net {

using TlsContext = std::shared_ptr<SSL_CTX>;

// For clients; null when TLS is off or mode is prefer and no certificate is configured.
[[nodiscard]] Result<TlsContext> make_client_side_tls(const Config::Tls& config);
// For shards; null for sslmode=disable.
[[nodiscard]] Result<TlsContext> make_server_side_tls(const Target& target);

}  // namespace collegedb::net
