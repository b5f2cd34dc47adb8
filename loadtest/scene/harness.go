package scene

import (
	"time"

	"navarch.io/navarch/loadtest/gauge"
)

// spareFiles is how many files a process needs besides one for each proxy: some for itself, and some for proxies that move
// and have two connections meanwhile.
const spareFiles = 500

// workers is how many processes the proxies of this scenario are dealt out over; 0: they are in this one.
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

// harness is what the processes of the simulated proxies have used so far.
func (s *stage) harness() (cpu time.Duration) {
	for _, pid := range s.fleet.PIDs() {
		if used, err := gauge.ReadCPU(pid); err == nil {
			cpu += used
		}
	}
	return cpu
}

// footprint adds the rows of what the harness itself takes: it must leave the machine to the servers.
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
