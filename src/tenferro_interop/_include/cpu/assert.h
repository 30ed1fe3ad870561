// assert is the device one of tfi_sync.h, which ends the launch and not the process.
#pragma once
