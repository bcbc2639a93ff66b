// SPDX-License-Identifier: Apache-2.0
// Coefficients of the odd polynomials x -> a x + b x^3 + c x^5 that Newton-Schulz applies one after the other to the
// singular values. Published sets by name, or one's own as text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace vmuon {

struct Step {
  double a;
  double b;
  double c;
};

struct CoefficientSet {
  std::string name;
  std::vector<Step> steps;
  // Gram form: steps (from 0) before which X is brought up to date and X X^T computed anew. Rounding gives X X^T small
  // negative eigenvalues, which the iteration amplifies; a restart ends that.
  std::vector<int> restarts;
  // X is divided by this times its Frobenius norm. No epsilon is added: orthogonalize(c G) = orthogonalize(G) for any c
  // > 0.
  double normFactor = 1;

  bool restartsBefore(int step) const;
};

// The set used when no name is given: the five Polar Express steps with a safety factor of 1.05.
inline constexpr const char* kDefaultCoefficients = "polar-express";

// `text` is a name, or a list of steps "a,b,c;a,b,c;..." that may end with "@i,j,..." for the restarts (without it
// there is one before step 2 and after every third step from there). Throws std::invalid_argument with the reason; an
// unknown name is answered with those there are.
CoefficientSet coefficientSet(std::string_view text);

std::vector<std::string> coefficientNames();

}  // namespace vmuon
