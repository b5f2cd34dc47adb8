package scene

import (
	"time"

	"navarch.io/navarch/loadtest/gauge"
)

// spareFiles is the number of files that a process needs in addition to one for each proxy: its own, and the second
// connections of proxies that move.
const spareFiles = 500

// workers returns the number of processes for the proxies of this scenario; 0: they run in this process.
func (s *stage) workers() int {
	if s.Workers >= 0 {
		return s.Workers
	}
	room := max(1, s.Files-spareFiles)
	if n := s.proxies(); n > room {
		return (n + room - 1) / room
	}
	return 0
}

// harness returns the CPU time that the processes of the simulated proxies have used so far.
func (s *stage) harness() (cpu time.Duration) {
	for _, pid := range s.fleet.PIDs() {
		if used, err := gauge.ReadCPU(pid); err == nil {
			cpu += used
		}
	}
	return cpu
}

// footprint adds the rows about the harness's own usage, which must leave the machine to the servers.
func (s *stage) footprint() error {
	bytes, err := s.fleet.Footprint()
	if err != nil {
		return err
	}
	name := rowOwnPlain
	if s.result.MTLS {
		name = rowOwnTLS
	}
	s.row(name, "KB", float64(bytes)/1e3/float64(s.proxies()))
	return nil
}
