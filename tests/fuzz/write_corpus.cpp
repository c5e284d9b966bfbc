// write_corpus DIR: writes the seeds of the wire fuzzers below DIR, from the byte tables of the
// unit tests. Run it when a table has changed.
#include <filesystem>
#include <fstream>
#include <iostream>

#include "proxy/wire/scram.h"
#include "tests/support/startup_cases.h"
#include "tests/support/wire_cases.h"

using namespace collegedb;

namespace {

class Corpus {
 public:
  Corpus(const std::filesystem::path& root, const char* target) : folder_(root / target) {
    std::filesystem::create_directories(folder_);
  }

  // The name of the row becomes that of the file.
  void add(std::string name, const std::string& bytes) const {
    for (char& c : name) {
      if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
    }
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }

 private:
  std::filesystem::path folder_;
};

void write_messages(const Corpus& corpus, const std::vector<test::MessageCase>& cases) {
  std::string stream;
  for (const auto& c : cases) {
    const std::string message = test::typed(c.tag, c.payload);
    corpus.add(c.name, message);
    if (c.error.empty()) stream += message;
  }
  corpus.add("stream", stream);
}

// A whole exchange of each side, with the secrets that the fuzz target uses.
void write_scram(const Corpus& corpus) {
  const auto verifier = wire::ScramVerifier::from_password("pencil", "salt", 1);
  wire::ScramServer server(verifier, "server-nonce", false);
  wire::ScramClient client("pencil", "client-nonce");
  const std::string client_first = client.first();
  const std::string server_first = server.first(wire::kScramSha256, client_first).value();
  const std::string client_final = client.final(server_first).value();
  const std::string server_final = server.final(client_final).value();
  const std::string mechanism(wire::kScramSha256);
  corpus.add("server", "server\n" + mechanism + "\n" + client_first + "\n" + client_final);
  corpus.add("server y", "server\n" + mechanism + "\ny,,n=u,r=abc,x=1\nc=eSws,r=abc,x=1,p=AAAA");
  corpus.add("server p", "server\n" + mechanism + "\np=tls-unique,a=z,m=x,n=,r=abc\n");
  corpus.add("client", "client\n" + server_first + "\n" + server_final);
  corpus.add("client error", "client\n" + server_first + ",x=1\ne=invalid-proof");
  corpus.add("verifier", "verifier\n" + verifier.to_string());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: write_corpus DIR\n";
    return 2;
  }
  write_messages(Corpus(argv[1], "fuzz_frontend"), test::frontend_cases());
  write_messages(Corpus(argv[1], "fuzz_backend"), test::backend_cases());
  const Corpus startup(argv[1], "fuzz_startup");
  for (const auto& c : test::startup_cases()) startup.add(c.name, c.bytes);
  write_scram(Corpus(argv[1], "fuzz_scram"));
}
