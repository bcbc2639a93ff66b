// SPDX-License-Identifier: Apache-2.0
// What the environment decides: the interface, and what a launcher says.
#include <catch2/catch.hpp>
#include <deque>

#include "bootstrap/group.h"
#include "bootstrap/netif.h"
#include "bootstrap/slurm_hosts.h"
#include "bootstrap/socket.h"
#include "unit/bootstrap_support.h"

using namespace vcoll;
using namespace vcoll::test;
using Catch::Matchers::Contains;

namespace {

Endpoint ipv4(unsigned char last) {
  Endpoint endpoint;
  endpoint.family = 4;
  endpoint.address = {10, 0, 0, last};
  return endpoint;
}
Endpoint ipv6(unsigned char first, unsigned char second) {
  Endpoint endpoint;
  endpoint.family = 6;
  endpoint.address = {first, second};
  endpoint.address[15] = 7;
  endpoint.scope = first == 0xfe ? 3 : 0;
  return endpoint;
}

// name, running, loopback, broadcast, address
std::vector<IfAddress> someInterfaces() {
  return {{"lo", true, true, false, ipv4(1)},         {"docker0", true, false, true, ipv4(2)},
          {"tun0", true, false, false, ipv4(3)},      {"eth9", false, false, true, ipv4(4)},
          {"eth0", true, false, true, ipv4(5)},       {"eth0", true, false, true, ipv6(0xfe, 0x80)},
          {"eth0", true, false, true, ipv6(0xfd, 0)}, {"ib0", true, false, true, ipv4(6)},
          {"eth01", true, false, true, ipv4(7)}};
}

std::string choose(const std::vector<IfAddress>& interfaces, const std::string& ifname,
                   const std::string& family = "") {
  IfAddress chosen;
  std::string why;
  const Status status = chooseInterface(interfaces, ifname, family, &chosen, &why);
  return status.ok() ? chosen.name + " " + chosen.endpoint.text() : status.text();
}

// The variables that readLaunchInfo reads, all unset but these.
class Launch {
 public:
  Launch(std::initializer_list<std::pair<const char*, const char*>> set) {
    for (const char* name : {"RANK",
                             "WORLD_SIZE",
                             "MASTER_ADDR",
                             "MASTER_PORT",
                             "TORCHELASTIC_USE_AGENT_STORE",
                             "OMPI_COMM_WORLD_RANK",
                             "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_SIZE",
                             "OMPI_MCA_ess_base_jobid",
                             "OMPI_MCA_orte_hnp_uri",
                             "PMIX_NAMESPACE",
                             "PMIX_RANK",
                             "PMIX_SIZE",
                             "SLURM_PROCID",
                             "SLURM_NTASKS",
                             "SLURM_STEP_NUM_TASKS",
                             "SLURM_STEP_NODELIST",
                             "SLURM_NODELIST",
                             "SLURM_JOB_NODELIST",
                             "SLURM_JOB_ID",
                             "SLURM_JOBID",
                             "SLURM_STEP_ID",
                             "SLURM_STEPID",
                             "VCOLL_COMM_ID"}) {
      variables_.emplace_back(name, nullptr);
    }
    for (const auto& [name, value] : set) variables_.emplace_front(name, value);
    status = readLaunchInfo(&info);
  }
  LaunchInfo info;
  Status status;

 private:
  // Destroyed from the front: what was set last is restored first.
  std::deque<ScopedEnv> variables_;
};

int portOf(const LaunchInfo& info) { return std::stoi(info.address.substr(info.address.rfind(':') + 1)); }

}  // namespace

TEST_CASE("VCOLL_SOCKET_IFNAME follows NCCL's syntax", "[bootstrap]") {
  const auto matches = [](const char* text, const char* name) { return IfSpec::parse(text).matches(name); };
  REQUIRE(matches("eth", "eth0"));
  REQUIRE_FALSE(matches("eth", "xeth0"));
  REQUIRE(matches("ib,eth", "eth1"));
  REQUIRE_FALSE(matches("ib,eth", "eno1"));
  REQUIRE(matches("=eth0", "eth0"));
  REQUIRE_FALSE(matches("=eth0", "eth01"));
  REQUIRE(matches("=eth0,ib0", "ib0"));
  REQUIRE_FALSE(matches("^docker", "docker0"));
  REQUIRE(matches("^docker,virbr", "eth0"));
  REQUIRE_FALSE(matches("^docker,virbr", "virbr0"));
  REQUIRE_FALSE(matches("^=eth0", "eth0"));
  REQUIRE(matches("^=eth0", "eth01"));
  REQUIRE(IfSpec::parse("eth,,ib,").names == std::vector<std::string>{"eth", "ib"});
}

TEST_CASE("the interface to listen on", "[bootstrap]") {
  const auto all = someInterfaces();
  REQUIRE(choose(all, "") == "eth0 10.0.0.5:0");
  REQUIRE(choose(all, "ib") == "ib0 10.0.0.6:0");
  REQUIRE(choose(all, "=eth01") == "eth01 10.0.0.7:0");
  REQUIRE(choose(all, "docker") == "docker0 10.0.0.2:0");  // asked for
  REQUIRE(choose(all, "tun") == "tun0 10.0.0.3:0");
  REQUIRE(choose(all, "lo") == "lo 10.0.0.1:0");
  REQUIRE(choose(all, "^docker,tun,eth") == "ib0 10.0.0.6:0");
  REQUIRE(choose(all, "", "AF_INET6") == "eth0 [fd00::7]:0");  // before the link-local address
  REQUIRE_THAT(choose(all, "eth9"), Contains("VCOLL_SOCKET_IFNAME=eth9") && Contains("not up and running"));
  REQUIRE_THAT(choose(all, "ib", "AF_INET6"), Contains("VCOLL_SOCKET_FAMILY=AF_INET6"));
  REQUIRE_THAT(choose(all, "", "ipv6"), Contains("VCOLL_SOCKET_FAMILY is \"ipv6\""));
  // The loopback and a link-local address are last resorts.
  REQUIRE(choose({all[0], all[1], all[2], all[3]}, "") == "lo 10.0.0.1:0");
  REQUIRE(choose({all[0], all[5]}, "") == "eth0 [fe80::7%3]:0");
  REQUIRE_THAT(choose({}, ""), Contains("no network interface"));
  std::vector<IfAddress> real;
  REQUIRE(listInterfaces(&real).ok());
  REQUIRE_FALSE(real.empty());
}

TEST_CASE("host:port texts", "[bootstrap]") {
  const auto parse = [](const char* text) {
    std::string host;
    uint16_t port = 0;
    const Status status = parseHostPort(text, "VCOLL_COMM_ID", &host, &port);
    return status.ok() ? host + " " + std::to_string(port) : status.text();
  };
  REQUIRE(parse("node1:4000") == "node1 4000");
  REQUIRE(parse("[::1]:1") == "::1 1");
  REQUIRE(parse("10.1.2.3:65535") == "10.1.2.3 65535");
  for (const char* bad :
       {"", "node1", ":4000", "node1:", "node1:0", "node1:65536", "node1:x", "::1:4000", "[]:1", "a:1 "}) {
    REQUIRE_THAT(parse(bad), Contains("VCOLL_COMM_ID is \"" + std::string(bad) + "\""));
  }
  std::vector<Endpoint> endpoints;
  bool literal = true;
  REQUIRE(resolveHost("localhost", 5, &endpoints, &literal).ok());
  REQUIRE_FALSE(literal);
  REQUIRE_THAT(resolveHost("no-such-host.invalid", 5, &endpoints, &literal).text(), Contains("no-such-host.invalid"));
}

TEST_CASE("the first host of a Slurm list", "[bootstrap]") {
  REQUIRE(firstSlurmHost("node7") == "node7");
  REQUIRE(firstSlurmHost("b,a") == "b");
  REQUIRE(firstSlurmHost("n[3-7,9]") == "n3");
  REQUIRE(firstSlurmHost("n[003-007],m1") == "n003");
  REQUIRE(firstSlurmHost("n[9,12-14]") == "n9");
  REQUIRE(firstSlurmHost("n[12]") == "n12");
  REQUIRE(firstSlurmHost("r[1-2]c[05-06]-ib,x") == "r1c05-ib");
  REQUIRE(firstSlurmHost("gpu-a.example,b") == "gpu-a.example");
  REQUIRE(firstSlurmHost("n[3-7") == "");
  REQUIRE(firstSlurmHost("n]3[") == "");
  REQUIRE(firstSlurmHost("n[]") == "");
}

TEST_CASE("launchers", "[bootstrap]") {
  SECTION("none") {
    const Launch launch({});
    REQUIRE(launch.status.ok());
    REQUIRE(launch.info.launcher == "none");
    REQUIRE(launch.info.nranks == 1);
    REQUIRE(launch.info.address == "");
  }
  SECTION("torchrun") {
    const Launch plain({{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29500"}});
    REQUIRE(plain.status.text() == "");
    REQUIRE(plain.info.launcher == "torchrun");
    REQUIRE(plain.info.rank == 3);
    REQUIRE(plain.info.nranks == 8);
    REQUIRE(plain.info.address == "node0:29500");
    const Launch agent({{"RANK", "0"},
                        {"WORLD_SIZE", "2"},
                        {"MASTER_ADDR", "fd00::1"},
                        {"MASTER_PORT", "29500"},
                        {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
    REQUIRE(agent.info.address == "[fd00::1]:29501");
    const Launch noAddress({{"RANK", "0"}, {"WORLD_SIZE", "2"}});
    REQUIRE_THAT(noAddress.status.text(), Contains("MASTER_ADDR") && Contains("VCOLL_COMM_ID"));
    const Launch alone({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
    REQUIRE(alone.status.ok());
    REQUIRE(alone.info.address == "");
    const Launch onlyRank({{"RANK", "5"}});
    REQUIRE(onlyRank.info.launcher == "none");
  }
  SECTION("VCOLL_COMM_ID overrides the address only") {
    const Launch launch({{"RANK", "1"},
                         {"WORLD_SIZE", "2"},
                         {"MASTER_ADDR", "node0"},
                         {"MASTER_PORT", "29500"},
                         {"VCOLL_COMM_ID", "other:7"}});
    REQUIRE(launch.info.rank == 1);
    REQUIRE(launch.info.address == "other:7");
    const Launch bad({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"VCOLL_COMM_ID", "other"}});
    REQUIRE(bad.status.code() == vcollInvalidArgument);
    REQUIRE_THAT(bad.status.text(), Contains("VCOLL_COMM_ID is \"other\""));
  }
  SECTION("Slurm") {
    const Launch step0({{"SLURM_PROCID", "2"},
                        {"SLURM_NTASKS", "4"},
                        {"SLURM_NODELIST", "n[07-08]"},
                        {"SLURM_JOB_ID", "991"},
                        {"SLURM_STEP_ID", "0"}});
    REQUIRE(step0.status.text() == "");
    REQUIRE(step0.info.launcher == "slurm");
    REQUIRE(step0.info.nranks == 4);
    REQUIRE_THAT(step0.info.address, Catch::Matchers::StartsWith("n07:"));
    REQUIRE(portOf(step0.info) >= 20000);
    REQUIRE(portOf(step0.info) < 30000);
    const Launch step1({{"SLURM_PROCID", "0"},
                        {"SLURM_NTASKS", "4"},
                        {"SLURM_STEP_NUM_TASKS", "2"},
                        {"SLURM_NODELIST", "n[07-08]"},
                        {"SLURM_STEP_NODELIST", "n08"},
                        {"SLURM_JOB_ID", "991"},
                        {"SLURM_STEP_ID", "1"}});
    REQUIRE(step1.info.nranks == 2);
    REQUIRE_THAT(step1.info.address, Catch::Matchers::StartsWith("n08:"));
    REQUIRE(portOf(step1.info) != portOf(step0.info));
    const Launch noNodes({{"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "4"}});
    REQUIRE_THAT(noNodes.status.text(), Contains("SLURM_NODELIST") && Contains("VCOLL_COMM_ID"));
    const Launch badNodes(
        {{"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "4"}, {"SLURM_NODELIST", "n["}, {"SLURM_JOB_ID", "991"}});
    REQUIRE_THAT(badNodes.status.text(), Contains("SLURM_NODELIST is \"n[\""));
  }
  SECTION("Open MPI, also inside of a Slurm job") {
    const Launch local({{"OMPI_COMM_WORLD_RANK", "1"},
                        {"OMPI_COMM_WORLD_SIZE", "2"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                        {"OMPI_MCA_ess_base_jobid", "1234"},
                        {"SLURM_PROCID", "0"},
                        {"SLURM_NTASKS", "2"},
                        {"PMIX_RANK", "1"}});
    REQUIRE(local.status.text() == "");
    REQUIRE(local.info.launcher == "openmpi");
    REQUIRE(local.info.rank == 1);
    REQUIRE_THAT(local.info.address, Catch::Matchers::StartsWith("127.0.0.1:2"));
    const Launch other({{"OMPI_COMM_WORLD_RANK", "1"},
                        {"OMPI_COMM_WORLD_SIZE", "2"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                        {"OMPI_MCA_ess_base_jobid", "1235"}});
    REQUIRE(portOf(other.info) != portOf(local.info));
    const Launch several(
        {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
    REQUIRE(several.status.code() == vcollInvalidUsage);
    REQUIRE_THAT(several.status.text(), Contains("8 ranks, 4 of them on this host") && Contains("VCOLL_COMM_ID"));
  }
  SECTION("PMIx") {
    const Launch noSize({{"PMIX_RANK", "0"}});
    REQUIRE_THAT(noSize.status.text(), Contains("PMIX_SIZE") && Contains("VCOLL_COMM_ID"));
    const Launch noAddress({{"PMIX_RANK", "0"}, {"PMIX_SIZE", "2"}});
    REQUIRE_THAT(noAddress.status.text(), Contains("VCOLL_COMM_ID"));
    const Launch good({{"PMIX_RANK", "1"}, {"PMIX_SIZE", "2"}, {"VCOLL_COMM_ID", "[::1]:9"}});
    REQUIRE(good.status.text() == "");
    REQUIRE(good.info.launcher == "pmix");
    REQUIRE(good.info.rank == 1);
  }
  SECTION("bad values") {
    const Launch text({{"RANK", "one"}, {"WORLD_SIZE", "2"}});
    REQUIRE(text.status.code() == vcollInvalidArgument);
    REQUIRE_THAT(text.status.text(), Contains("RANK is \"one\""));
    const Launch beyond({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
    REQUIRE(beyond.status.code() == vcollInvalidArgument);
    REQUIRE_THAT(beyond.status.text(), Contains("OMPI_COMM_WORLD_RANK is 2") && Contains("OMPI_COMM_WORLD_SIZE"));
    const Launch negative({{"SLURM_PROCID", "-1"}, {"SLURM_NTASKS", "2"}});
    REQUIRE_THAT(negative.status.text(), Contains("SLURM_PROCID is \"-1\""));
    const Launch zero({{"PMIX_RANK", "0"}, {"PMIX_SIZE", "0"}});
    REQUIRE_THAT(zero.status.text(), Contains("PMIX_SIZE is \"0\""));
    const Launch port({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "70000"}});
    REQUIRE_THAT(port.status.text(), Contains("MASTER_PORT is \"70000\""));
  }
}
