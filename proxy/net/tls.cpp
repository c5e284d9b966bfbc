#include "proxy/net/tls.h"

#include <openssl/err.h>
#include <openssl/x509.h>

#include <string>

namespace collegedb::net {
namespace {

constexpr unsigned char kAlpn[] = "\x0apostgresql";
constexpr unsigned kAlpnLength = sizeof kAlpn - 1;

SqlError failure(const std::string& what) {
  const unsigned long code = ERR_get_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return make_error("F0000", what + (reason == nullptr ? "" : std::string(": ") + reason));
}

TlsContext make_context(const SSL_METHOD* method) {
  TlsContext context(SSL_CTX_new(method), SSL_CTX_free);
  if (!context) return context;
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(),
                      SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context.get(), 0);
  return context;
}

int select_alpn(SSL*, const unsigned char** out, unsigned char* out_length,
                const unsigned char* offered, unsigned offered_length, void*) {
  unsigned char* chosen = nullptr;
  const int result =
      SSL_select_next_proto(&chosen, out_length, kAlpn, kAlpnLength, offered, offered_length);
  *out = chosen;
  return result == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

Result<void> load_certificate(SSL_CTX* context, const std::string& cert, const std::string& key) {
  if (SSL_CTX_use_certificate_chain_file(context, cert.c_str()) != 1) {
    return failure("cannot load certificate file \"" + cert + "\"");
  }
  if (SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return failure("cannot load private key file \"" + key + "\"");
  }
  if (SSL_CTX_check_private_key(context) != 1) {
    return failure("private key \"" + key + "\" does not belong to certificate \"" + cert + "\"");
  }
  return {};
}

}  // namespace

Result<TlsContext> make_client_side_tls(const Config::Tls& config) {
  ERR_clear_error();
  if (config.mode == Config::TlsMode::kDisable) return TlsContext{};
  if (config.cert.empty()) {
    if (config.mode == Config::TlsMode::kPrefer) return TlsContext{};
    return make_error("F0000", "tls.mode needs tls.cert and tls.key");
  }
  TlsContext context = make_context(TLS_server_method());
  if (!context) return failure("cannot create a TLS context");
  SSL_CTX_set_alpn_select_cb(context.get(), select_alpn, nullptr);
  const std::string& key = config.key.empty() ? config.cert : config.key;
  if (auto loaded = load_certificate(context.get(), config.cert, key); !loaded) {
    return loaded.error();
  }
  const bool verify = config.mode == Config::TlsMode::kVerifyFull;
  if (config.ca.empty()) {
    if (verify) return make_error("F0000", "tls.mode = \"verify-full\" needs tls.ca");
    return context;
  }
  if (SSL_CTX_load_verify_locations(context.get(), config.ca.c_str(), nullptr) != 1) {
    return failure("cannot load tls.ca \"" + config.ca + "\"");
  }
  SSL_CTX_set_client_CA_list(context.get(), SSL_load_client_CA_file(config.ca.c_str()));
  SSL_CTX_set_verify(context.get(),
                     SSL_VERIFY_PEER | (verify ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0), nullptr);
  return context;
}

Result<TlsContext> make_server_side_tls(const Target& target) {
  ERR_clear_error();
  if (target.ssl_mode == SslMode::kDisable) return TlsContext{};
  TlsContext context = make_context(TLS_client_method());
  if (!context) return failure("cannot create a TLS context");
  SSL_CTX_set_alpn_protos(context.get(), kAlpn, kAlpnLength);
  if (!target.ssl_cert.empty()) {
    const std::string& key = target.ssl_key.empty() ? target.ssl_cert : target.ssl_key;
    if (auto loaded = load_certificate(context.get(), target.ssl_cert, key); !loaded) {
      return loaded.error();
    }
  }
  if (target.ssl_mode < SslMode::kVerifyCa) return context;
  const bool system = target.ssl_root_cert == "system";
  if (!system && target.ssl_root_cert.empty()) {
    return make_error("F0000", "sslmode verify-ca and verify-full need sslrootcert");
  }
  const int loaded =
      system ? SSL_CTX_set_default_verify_paths(context.get())
             : SSL_CTX_load_verify_locations(context.get(), target.ssl_root_cert.c_str(), nullptr);
  if (loaded != 1) return failure("cannot load sslrootcert \"" + target.ssl_root_cert + "\"");
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  return context;
}

}  // namespace collegedb::net
