// SPDX-License-Identifier: Apache-2.0
#include "math/coefficients.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <stdexcept>

namespace vmuon {
namespace {

// Polar Express (arXiv 2505.16932), degree 5, before any safety factor.
const std::vector<Step>& polarExpress() {
  static const auto* const steps = new std::vector<Step>{{8.28721201814563, -23.595886519098837, 17.300387312530933},
                                                         {4.107059111542203, -2.9478499167379106, 0.5448431082926601},
                                                         {3.9486908534822946, -2.908902115962949, 0.5518191394370137},
                                                         {3.3184196573706015, -2.488488024314874, 0.51004894012372},
                                                         {2.300652019954817, -1.6689039845747493, 0.4188073119525673}};
  return *steps;
}

// p(x / safety): a singular value that rounding has pushed above 1 stays where the polynomials converge.
std::vector<Step> withSafety(std::vector<Step> steps, double safety) {
  for (Step& step : steps) {
    step.a /= safety;
    step.b /= std::pow(safety, 3);
    step.c /= std::pow(safety, 5);
  }
  return steps;
}

// For five steps one restart, before the third, keeps errors least; more steps need more of them.
std::vector<int> usualRestarts(size_t steps) {
  std::vector<int> restarts;
  for (int i = 2; i < static_cast<int>(steps); i += 3) restarts.push_back(i);
  return restarts;
}

CoefficientSet make(const char* name, std::vector<Step> steps, double normFactor = 1) {
  const size_t count = steps.size();
  return {name, std::move(steps), usualRestarts(count), normFactor};
}

constexpr Step kKellerJordan = {3.4445, -4.7750, 2.0315};

std::vector<Step> deepseekV4() {
  std::vector<Step> steps(8, kKellerJordan);
  steps.insert(steps.end(), 2, Step{2, -1.5, 0.5});
  return steps;
}

const std::vector<CoefficientSet>& published() {
  static const auto* const sets = new std::vector<CoefficientSet>{
      make(kDefaultCoefficients, withSafety(polarExpress(), 1.05)),
      // Eight steps, as published with four digits and a safety factor of 1.01.
      make("polar-express-8", {{8.2051, -22.9019, 16.4607},
                               {4.0664, -2.8612, 0.5184},
                               {3.9096, -2.8234, 0.5250},
                               {3.2856, -2.4153, 0.4853},
                               {2.2779, -1.6198, 0.3985},
                               {1.8726, -1.2307, 0.3585},
                               {1.8564, -1.2132, 0.3568},
                               {1.8750, -1.2500, 0.3750}}),
      make("polar-express-dion",
           {{8.156554524902461, -22.48329292557795, 15.878769915207462},
            {4.042929935166739, -2.808917465908714, 0.5000178451051316},
            {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
            {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
            {2.3465413258596377, -1.7097828382687081, 0.42323551169305323}},
           1.02),
      make("quintic", {{4.0848, -6.8946, 2.9270},
                       {3.9505, -6.3029, 2.6377},
                       {3.7418, -5.5913, 2.3037},
                       {2.8769, -3.1427, 1.2046},
                       {2.8366, -3.0525, 1.2012}}),
      make("muon", std::vector<Step>(5, kKellerJordan)),
      make("cans", {{8.4703, -25.1081, 18.6293},
                    {4.1828, -3.1087, 0.5806},
                    {3.9619, -2.9541, 0.5630},
                    {3.2866, -2.4647, 0.5074},
                    {2.2737, -1.6447, 0.4162}}),
      // Made for a preconditioner that keeps singular values well below 1, which is not done here: those above 0.88
      // would change sign (and a matrix of rank 1 has one of 1), so the norm is enlarged.
      make("aol",
           {{4.0098, -7.0585, 2.4635}, {3.4585, -5.5479, 2.5959}, {2.7573, -3.2939, 1.4254}, {2.7215, -3.0494, 1.3169}},
           4.0 / 3),
      make("deepseek-v4", deepseekV4()),
      make("cubic5", {{3.3656576, -3.3420992, 0},
                      {2.5744352, -1.4957376, 0},
                      {2.5368962, -1.4312570, 0},
                      {2.4418906, -1.2764040, 0},
                      {2.2230472, -0.9630650, 0}}),
  };
  return *sets;
}

struct Alias {
  const char* alias;
  const char* name;
};
constexpr Alias kAliases[] = {{"you", "quintic"}, {"keller-jordan", "muon"}};

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

template <typename Number>
Number parseNumber(std::string_view part, std::string_view whole) {
  while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
  while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
  Number value{};
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
  if (error != std::errc() || end != part.data() + part.size() || !std::isfinite(static_cast<double>(value))) {
    throw std::invalid_argument("coefficients \"" + std::string(whole) + "\": \"" + std::string(part) +
                                "\" is not a number");
  }
  return value;
}

CoefficientSet parseCustom(std::string_view text) {
  CoefficientSet set;
  set.name = text;
  const size_t at = text.find('@');
  for (const std::string_view part : split(text.substr(0, at), ';')) {
    const auto numbers = split(part, ',');
    if (numbers.size() != 3) {
      throw std::invalid_argument("coefficients \"" + std::string(text) + "\": step \"" + std::string(part) +
                                  "\" has " + std::to_string(numbers.size()) + " numbers, a,b,c wanted");
    }
    set.steps.push_back({parseNumber<double>(numbers[0], text), parseNumber<double>(numbers[1], text),
                         parseNumber<double>(numbers[2], text)});
  }
  if (at == std::string_view::npos) {
    set.restarts = usualRestarts(set.steps.size());
    return set;
  }
  if (at + 1 == text.size()) return set;  // "...@": none
  const int count = static_cast<int>(set.steps.size());
  for (const std::string_view part : split(text.substr(at + 1), ',')) {
    const int step = parseNumber<int>(part, text);
    if (step < 1 || step >= count) {
      throw std::invalid_argument("coefficients \"" + std::string(text) + "\": restart " + std::to_string(step) +
                                  " is not in 1 .. " + std::to_string(count - 1));
    }
    set.restarts.push_back(step);
  }
  return set;
}

}  // namespace

bool CoefficientSet::restartsBefore(int step) const {
  return std::find(restarts.begin(), restarts.end(), step) != restarts.end();
}

CoefficientSet coefficientSet(std::string_view text) {
  std::string_view name = text;
  for (const Alias& alias : kAliases) {
    if (name == alias.alias) name = alias.name;
  }
  for (const CoefficientSet& set : published()) {
    if (set.name == name) return set;
  }
  if (text.find(',') != std::string_view::npos) return parseCustom(text);
  std::string known;
  for (const std::string& each : coefficientNames()) known += (known.empty() ? "" : ", ") + each;
  throw std::invalid_argument("no Newton-Schulz coefficients are called \"" + std::string(text) + "\"; there are " +
                              known + ", and \"a,b,c;a,b,c;...\"");
}

std::vector<std::string> coefficientNames() {
  std::vector<std::string> names;
  for (const CoefficientSet& set : published()) names.push_back(set.name);
  for (const Alias& alias : kAliases) names.emplace_back(alias.alias);
  return names;
}

}  // namespace vmuon
