package keyring

import "time"

// Stats are what operators watch. Cheap: no etcd is asked.
type Stats struct {
	Sealed bool // this replica cannot sign
	Alarm  bool // what etcd holds is refused
	// Epochs counts the epochs that are known, by status; every status is there.
	Epochs     map[Status]int
	Generation uint64
	// RootEnd and ChainEnd are when the active epoch's last root expires, and when it can sign no more. Zero: not known.
	RootEnd, ChainEnd time.Time
	// Waiting is how many holders a rotation waits for, as of the last look; 0 on replicas that do not lead.
	Waiting                           int
	RevokedSerials, RevokedIdentities int
	Queued                            int           // entries that wait for the transaction under way to end
	Lag                               time.Duration // since the oldest entry of that transaction came; 0: none is under way
	Peers                             int           // that answered last
	Allowance                         int           // renewals that may be issued while etcd is away
}

// Stats counts what there is at present. It may be called from any goroutine.
func (k *Keyring) Stats() Stats {
	s := k.State()
	out := Stats{
		Sealed: s.Active == nil, Alarm: s.Alarm != nil, Generation: s.Generation,
		Epochs:  map[Status]int{Prepared: 0, Active: 0, Retiring: 0, Retired: 0},
		Waiting: int(k.waiting.Load()), RevokedSerials: len(s.serials), RevokedIdentities: len(s.identities),
		Queued: len(k.entries), Peers: int(k.peers.Load()),
	}
	for _, e := range s.Epochs {
		out.Epochs[e.Status]++
		if e.Status == Active {
			out.ChainEnd = e.NotAfter
		}
	}
	if s.Active != nil {
		for _, root := range s.Active.Roots {
			if root.NotAfter.After(out.RootEnd) {
				out.RootEnd = root.NotAfter
			}
		}
	}
	out.Allowance = k.allowances.left(k.cfg.Now())
	if came := k.oldest.Load(); came != 0 {
		out.Lag = time.Since(time.Unix(0, came))
	}
	return out
}
