package scene

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// Rows of an operator's commands.
const (
	rowStatus      = "status of all proxies, slowest"
	rowStopped     = "the same while a replica is stopped"
	rowPlanRoute   = "plan of one VirtualService, slowest"
	rowPlanStrict  = "plan of STRICT in the root namespace, slowest"
	rowPlanDelayed = "endpoints' p99 while plans are made, of that without"
)

// apiRoot is the path of navarchd's API.
const apiRoot = "/api/v1/"

// strictEverywhere is the object of the plan that affects the most proxies.
const strictEverywhere = `apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: planned, namespace: istio-system}
spec: {mtls: {mode: STRICT}}
`

// commands measures what navarchctl proxy-status and plan cost: their answers, and the delay of endpoints meanwhile.
func commands(s *stage) error {
	if err := s.joined(nil); err != nil {
		return err
	}
	// Replicas may be busy with the last joins, and then collect what the joins left.
	_, peak := usage(s.watched())
	if _, err := s.settledMemory(peak); err != nil {
		return err
	}
	if err := s.await("all replicas answer", s.status); err != nil {
		return err
	}
	if err := s.slowest(rowStatus, s.status); err != nil {
		return err
	}
	route := s.churn.VirtualServices(s.seen()).Contents()
	plans := []struct {
		row  string
		body []byte
	}{{rowPlanRoute, bytes.Join(route, []byte("---\n"))}, {rowPlanStrict, []byte(strictEverywhere)}}
	for _, p := range plans {
		if err := s.slowest(p.row, func() error { return s.plan(s.ctx, p.body) }); err != nil {
			return err
		}
	}
	if err := s.planned(func(ctx context.Context, i int) error { return s.plan(ctx, plans[i%len(plans)].body) }); err != nil {
		return err
	}
	return s.stopped()
}

// slowest adds the slowest of several calls to the rows.
func (s *stage) slowest(row string, call func() error) error {
	s.enter(row)
	var most time.Duration
	for range s.Repeats + 1 {
		began := time.Now()
		if err := call(); err != nil {
			return fmt.Errorf("%s: %w", row, err)
		}
		most = max(most, time.Since(began))
	}
	s.row(row, "s", most.Seconds())
	return nil
}

// planned edits endpoints, first alone, then while plans are made one after the other.
func (s *stage) planned(plan func(ctx context.Context, i int) error) error {
	_, quiet := s.sides()
	if len(quiet) < 2 {
		return errors.New("the mesh has no second service")
	}
	span := s.span(20 * time.Second)
	s.enter("edits of endpoints alone")
	alone, err := s.editAll(quiet[:len(quiet)/2], span)
	if err != nil {
		return err
	}
	s.enter("edits of endpoints while plans are made")
	ctx, stop := context.WithCancel(s.ctx)
	var making sync.WaitGroup
	var failed error
	plans := 0
	making.Go(func() {
		for ; ctx.Err() == nil && failed == nil; plans++ {
			if err := plan(ctx, plans); ctx.Err() == nil { // a plan that the end of the edits cancelled has not failed
				failed = err
			}
		}
	})
	beside, err := s.editAll(quiet[len(quiet)/2:], span)
	stop()
	making.Wait()
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	s.row("plans made meanwhile", "", float64(plans))
	for _, of := range []struct {
		name  string
		edits *endpointEdits
	}{{"commit to ACK: without plans", alone}, {"commit to ACK: while plans are made", beside}} {
		s.latency(of.name, &of.edits.acks)
		s.row(of.name+", p99", "ms", ms(of.edits.p99()))
	}
	s.row(rowPlanDelayed, "", ms(beside.p99())/ms(alone.p99()))
	s.row(rowMissing, "", float64(alone.missing+beside.missing))
	return nil
}

// stopped asks for the status of all proxies while the first replica does not run.
func (s *stage) stopped() error {
	s.enter(rowStopped)
	if s.servers[0].cmd == nil || len(s.servers) < 2 {
		return errors.New("the scenario stops one of several replicas that it has started")
	}
	victim := s.servers[0].cmd.Process
	if err := victim.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	defer func() { _ = victim.Signal(syscall.SIGCONT) }()
	began := time.Now()
	a, err := s.proxiesBy(s.servers[1])
	if err != nil {
		return err
	}
	took := time.Since(began)
	if len(a.Partial) != 1 || a.Partial[0].Replica == "" {
		return fmt.Errorf("one replica is stopped, and the answer lacks %v", a.Partial)
	}
	s.row(rowStopped, "s", took.Seconds())
	return nil
}

// status reads the sums and the first window of all proxies. The error names replicas that did not answer.
func (s *stage) status() error {
	a, err := s.proxiesBy(s.servers[0])
	switch {
	case err != nil:
		return err
	case len(a.Partial) > 0:
		return fmt.Errorf("no answer of %v", a.Partial)
	case a.Sums == nil || a.Sums.Total.InSync+a.Sums.Total.Behind+a.Sums.Total.Refusing != s.proxies():
		return fmt.Errorf("%d proxies are connected, and the sums are %+v", s.proxies(), a.Sums)
	}
	return nil
}

// apiAnswer has the fields of the API's answers that the scenario reads.
type apiAnswer struct {
	Partial []struct {
		Replica string `json:"replica"`
		Reason  string `json:"reason"`
	} `json:"partial"`
	Sums *struct {
		Total struct {
			InSync   int `json:"in_sync"`
			Behind   int `json:"behind"`
			Refusing int `json:"refusing"`
		} `json:"total"`
	} `json:"sums"`
	Items []planAnswer `json:"items"`
}

// planAnswer has the fields of a plan by which it is whole.
type planAnswer struct {
	Objects []struct {
		Act string `json:"act"`
	} `json:"objects"`
	Partial []string `json:"partial"`
}

// proxiesBy asks one replica for the proxies of all.
func (s *stage) proxiesBy(one *Server) (a apiAnswer, err error) {
	err = one.page(s.ctx, apiRoot+"proxies", &a)
	return a, err
}

// plan previews objects at all replicas. It is an error if the plan lacks a replica, or refuses an object.
func (s *stage) plan(ctx context.Context, objects []byte) error {
	raw, err := s.servers[0].ask(ctx, http.MethodPost, apiRoot+"plan", objects)
	if err != nil {
		return err
	}
	var a apiAnswer
	if err := json.Unmarshal(raw, &a); err != nil {
		return err
	}
	if len(a.Items) != 1 || len(a.Partial)+len(a.Items[0].Partial) > 0 || a.Items[0].refused() {
		return fmt.Errorf("the plan is not whole: %.300s", raw)
	}
	return nil
}

// refused reports whether an object was refused, so that nothing was planned.
func (p planAnswer) refused() bool {
	for _, o := range p.Objects {
		if o.Act == "refused" {
			return true
		}
	}
	return false
}
