package machines

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/store/machines"
)

// reports writes the pending reports; nil stands for a deleted report.
func reports(t *testing.T, r *Registry) (all []*machines.Machine) {
	t.Helper()
	changes, _ := r.pending(time.Now())
	for _, c := range changes {
		c.machine.written = c.raw
		all = append(all, nil)
		if c.raw != nil {
			m, err := machines.Decode(c.raw)
			if err != nil {
				t.Fatal(err)
			}
			all[len(all)-1] = &m
		}
	}
	return all
}

// A machine that joins and leaves as fast as it can is reported once in ConnectionEvery, in its state of that time, and
// its health no more often. Its first report is immediate. After it has left for good its report stays for the grace
// and is deleted, also if the grace is shorter than ConnectionEvery.
// Promise: security-workloads.md#who-has-a-machines-token
func TestConnectionsArePaced(t *testing.T) {
	for _, grace := range []time.Duration{machines.DefaultGrace, 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			r := registry(mesh(t))
			r.Grace = grace
			every := min(5*time.Second, grace/2)
			var written []*machines.Machine
			look := func() { written = append(written, reports(t, r)...) }
			began := time.Now()
			for time.Since(began) < time.Minute {
				c, err := r.Register(node("10.0.0.1"), "one", nil)
				if err != nil {
					t.Fatal(err)
				}
				look()
				if len(written) == 0 {
					t.Fatal("the first connection is not reported at once")
				}
				c.Health(false, "down")
				look()
				time.Sleep(50 * time.Millisecond)
				c.Leave()
				look()
				time.Sleep(50 * time.Millisecond)
			}
			if most := int(time.Minute/every) + int(time.Minute/HealthEvery) + 2; len(written) > most {
				t.Errorf("grace %v: %d reports in a minute, want %d at most", grace, len(written), most)
			}
			c, err := r.Register(node("10.0.0.1"), "one", nil)
			if err != nil {
				t.Fatal(err)
			}
			look()
			time.Sleep(every)
			look()
			if last := written[len(written)-1]; last == nil || !last.Connected.Equal(c.at) || !last.Disconnected.IsZero() {
				t.Errorf("grace %v: it is connected, and reported is %+v", grace, last)
			}
			c.Leave()
			left := time.Now()
			time.Sleep(every)
			look()
			if last := written[len(written)-1]; last == nil || !last.Disconnected.Equal(left) {
				t.Errorf("grace %v: it has left, and reported is %+v", grace, last)
			}
			time.Sleep(grace - time.Since(left) - time.Nanosecond)
			if look(); written[len(written)-1] == nil {
				t.Errorf("grace %v: its report is taken away before that", grace)
			}
			time.Sleep(time.Nanosecond)
			look()
			if look(); written[len(written)-1] != nil || len(r.known.all) != 0 {
				t.Errorf("grace %v: after it there is %+v, and %d machines are known", grace, written[len(written)-1], len(r.known.all))
			}
		})
	}
}

// Service accounts alternate in what is reported: a machine of one account does not wait for all machines of an account
// with many.
// Promise: security-workloads.md#who-has-a-machines-token
func TestAccountsTakeTurns(t *testing.T) {
	r := registry(mesh(t))
	for i := range machines.MostOfAccount {
		r.known.put(machines.Machine{Namespace: "shop", Name: fmt.Sprint("m", i), Account: "many", Connected: time.Now()})
	}
	r.known.put(machines.Machine{Namespace: "shop", Name: "one", Account: "one", Connected: time.Now()})
	for _, m := range r.known.all {
		m.open = []*Connection{{}}
	}
	changes, wait := r.pending(time.Now())
	first := map[string]bool{}
	for _, c := range changes[:2] {
		first[c.machine.report.Account] = true
	}
	if len(changes) != writes || wait != 0 || !first["one"] {
		t.Errorf("%d are to be written, and the next in %v; the first are of %v", len(changes), wait, first)
	}
}

// A replica writes at most a hundred reports at once and a hundred a second, however many machines come and go.
func TestWritesArePaced(t *testing.T) {
	limit, now := pace(), time.Now()
	for _, after := range []time.Duration{0, time.Second} {
		for i := range 101 {
			if may := limit.AllowN(now.Add(after), 1); may != (i < 100) {
				t.Errorf("after %v: report %d may be written: %v", after, i+1, may)
			}
		}
	}
}
