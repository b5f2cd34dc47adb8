package keyring

import (
	"fmt"
	"testing"
	"time"
)

// By default one replica journals this many certificates one by one for an identity, and for one origin of it: the
// figures of deploy/docs/security-limits.md.
func TestPartsOfTheJournal(t *testing.T) {
	tally, now := newJournalQuota(identityBytes), time.Unix(1_700_000_000, 0)
	add := func(origin string, bytes int) granularity {
		return tally.add(Issue{Identity: "spiffe://cluster.local/ns/shop/sa/web", Origin: origin, NotAfter: now.Add(time.Hour)}, bytes, now)
	}
	const ofOne = 2 << 20
	for i := range 16 {
		origin := fmt.Sprint(i)
		if first, last := add(origin, ofOne-1), add(origin, 1); first != perCertificate || last != perCertificate {
			t.Fatalf("origin %d: as %d and %d, within 2 MiB", i, first, last)
		}
		if i < 15 && add(origin, 1) != perOrigin {
			t.Fatalf("origin %d: one byte more than 2 MiB", i)
		}
	}
	if got := add("another", 1); got != perIdentity {
		t.Errorf("one byte more than 32 MiB of an identity: as %d", got)
	}
}
