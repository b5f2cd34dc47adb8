package keyring

import "time"

// Stats are the keyring's figures for operators, from this replica's memory.
type Stats struct {
	Sealed bool // this replica cannot sign
	Alarm  bool // the keyring in etcd is refused
	// Epochs counts the known epochs by status. Every status has a key, also with the count 0.
	Epochs     map[Status]int
	Generation uint64 // State.Generation
	// RootEnd is the latest end of the active epoch's roots. It is zero while Sealed is true. ChainEnd is
	// Epoch.NotAfter of the active epoch. It is zero if no active epoch is known.
	RootEnd, ChainEnd time.Time
	// Waiting is the number of certificate holders that a rotation waited for when this replica last checked. It is 0
	// before the first check. A replica that does not lead (Config.Leads) checks only in Rotate.
	Waiting int
	// RevokedSerials and RevokedIdentities are the numbers of revoked certificates and of denied identities.
	RevokedSerials, RevokedIdentities int
	Queued                            int           // journal entries that wait for the transaction under way; at most 512
	Lag                               time.Duration // age of the oldest entry of the transaction under way; 0: no transaction
	// Peers is the number of answers in the last round of Config.Peers. It may include this replica's own answer.
	Peers     int
	Allowance int // renewals that may be issued while etcd is away
}

// Stats returns the present figures. It does not block and sends nothing to etcd. The caller owns the result.
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
	out.Allowance = k.allowances.remaining(k.cfg.Now())
	if came := k.oldest.Load(); came != 0 {
		out.Lag = time.Since(time.Unix(0, came))
	}
	return out
}
