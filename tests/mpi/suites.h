// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace suite {

void dataSuite();        // private buffers: AllGatherV and ReduceScatterV against closed forms and MPI
void plansSuite();       // plans on windows
void numbersSuite();     // reproducible bits, accuracy, NaN, special values
void argumentsSuite();   // bad arguments of every entry point; structs of other sizes
void mismatchSuite();    // ranks that disagree
void settingsSuite();    // ranks started with different settings
void streamsSuite();     // host streams, order, several communicators
void lifeSuite();        // split, finalize, abort, ids
void threadsSuite();     // several ranks in one process
void publishSuite();     // PublishStream
void publishUseSuite();  // its bad arguments and disagreements
void churnSuite();       // nothing grows
void manySuite();        // many calls back to back

}  // namespace suite
