// cooperative_groups::reduce stands in cooperative_groups.h.
#pragma once
#include "../cooperative_groups.h"
