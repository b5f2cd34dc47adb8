package serve

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"navarch.io/navarch/ca/issue"
)

func heavy(identity string, first bool, bytes int) *ticket {
	t := ask(identity, first, time.Hour)
	t.bytes = bytes
	return t
}

// Identities that send the largest requests as fast as they can use at most the queue's bytes, and a newcomer always
// has room: each of them leaves less, but never none.
// Promise: security-limits.md#certificates
func TestQueueIsBoundedByBytes(t *testing.T) {
	for _, first := range []bool{true, false} {
		q := testQueue(t, func(l *Limits) { l.Rate, l.Burst, l.Waiting = 1e6, 1e6, 1<<20 })
		q.Step(epoch, arrive{ask("busy", true, time.Hour)})
		for n := 1; n <= 20; n++ {
			for i := range 2100 { // 33 MiB
				q.Step(epoch, arrive{heavy(fmt.Sprint("hog", i%n), first, issue.MaxCSR)})
			}
			if q.memory.used > 32<<20 {
				t.Fatalf("%d bytes wait", q.memory.used)
			}
			good := heavy(fmt.Sprint("good", n), first, 1200)
			if es := q.Step(epoch, arrive{good}); len(es) != 0 || good.state != waiting {
				t.Fatalf("first %v: beside %d identities, with %d bytes waiting: %v", first, n, q.memory.used, es)
			}
		}
		if q.memory.used < 24<<20 {
			t.Errorf("first %v: only %d bytes wait: the test measures nothing", first, q.memory.used)
		}
	}
}

// The same between the credentials of one identity: one alone gets a quarter of the bytes, and however many fill the
// identity's part, another one has room.
// Promise: security-limits.md#certificates
func TestCredentialsLeaveRoom(t *testing.T) {
	q := testQueue(t, func(l *Limits) { l.Rate, l.Burst, l.Waiting = 1e6, 1e6, 1<<20 })
	q.Step(epoch, arrive{ask("busy", true, time.Hour)})
	for n := 1; n <= 8; n++ {
		for i := range 2100 { // 33 MiB
			q.Step(epoch, arrive{heavy(fmt.Sprint("web/hog", i%n), true, issue.MaxCSR)})
		}
		if used := q.memory.used; used > 16<<20 || n == 1 && used > 8<<20 || used < 7<<20 {
			t.Errorf("%d credentials: %d bytes wait", n, used)
		}
		for _, who := range []string{fmt.Sprint("web/good", n), fmt.Sprint("good", n)} {
			good := heavy(who, true, 1200)
			if es := q.Step(epoch, arrive{good}); len(es) != 0 || good.state != waiting {
				t.Fatalf("%s beside %d credentials, with %d bytes waiting: %v", who, n, q.memory.used, es)
			}
		}
	}
}

// First certificates displace renewals if bytes are short, as many as needed, and no more.
// Promise: security-limits.md#certificates
func TestBytesOfRenewalsMakeRoomForFirstCertificates(t *testing.T) {
	q := testQueue(t, func(l *Limits) { l.WaitingBytes = 4000 })
	q.Step(epoch, arrive{ask("busy", true, time.Hour)})
	for i := range 12 {
		q.Step(epoch, arrive{heavy(fmt.Sprint("r", i), false, 300)})
	}
	if got, want := names(q.Step(epoch, arrive{heavy("f", true, 1000)})), "refuse r11 ResourceExhausted, refuse r10 ResourceExhausted, refuse r9 ResourceExhausted, refuse r8 ResourceExhausted, refuse r7 ResourceExhausted, refuse r6 ResourceExhausted"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := names(q.Step(epoch, arrive{heavy("f", true, 3500)})); got != "refuse f ResourceExhausted" {
		t.Errorf("more than there is: %s", got)
	}
	if got := names(q.Step(epoch, arrive{heavy("r", false, 1500)})); got != "refuse r ResourceExhausted" || q.memory.used != 2800 {
		t.Errorf("a renewal that would take the rest: %s, %d bytes wait", got, q.memory.used)
	}
}

// The default limits of the CA are the figures of deploy/docs/security-limits.md.
func TestDefaultLimits(t *testing.T) {
	cores := runtime.GOMAXPROCS(0)
	want := Limits{Signing: cores, Checks: 4 * cores, Journal: 4096, Waiting: 32768, WaitingBytes: 32 << 20, MaxWait: 20 * time.Second, Rate: 500, Burst: 5000, FirstRuns: 15}
	var got Limits
	if err := got.fill(); err != nil || got != want {
		t.Errorf("%+v, want %+v: %v", got, want, err)
	}
}
