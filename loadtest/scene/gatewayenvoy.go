package scene

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"navarch.io/navarch/loadtest/gauge"
	"navarch.io/navarch/loadtest/mesh"
	"navarch.io/navarch/loadtest/router"
	"navarch.io/navarch/store/loopback"
)

// rebuildEvery is the interval of edits at which rebuilds of Envoy follow one another.
const rebuildEvery = 200 * time.Millisecond

// answered gives the gateway a port of its own, which a real Envoy can bind. Without a free port it stays 80.
func answered(s *mesh.Settings) {
	if at, err := loopback.Address(); err == nil {
		_, port, _ := net.SplitHostPort(at)
		s.FrontPort, _ = strconv.Atoi(port)
	}
}

// filtered has 3,000 services, of which 50 have routes.
func filtered(s *mesh.Settings) {
	answered(s)
	s.Services, s.Routes = max(s.Namespaces, 6*s.Services), 50
}

// envoy starts a real Envoy as a gateway of a server, and waits until it has its configuration.
func (s *stage) envoy(name, server string) (*router.Envoy, error) {
	if s.Envoy == "" {
		return nil, errors.New("no Envoy: this scenario needs --envoy")
	}
	if s.result.MTLS || s.starter == nil {
		return nil, errors.New("this scenario starts its servers itself, without TLS")
	}
	e, err := router.Start(s.Envoy, s.starter.dir, name, server, router.Node(s.mesh.Namespaces()[0], name, mesh.GatewayLabel))
	if err != nil {
		return nil, err
	}
	if err := e.Live(s.ctx); err != nil {
		e.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return e, nil
}

// answering adds routes to a gateway, one at each interval, and measures until Envoy answers requests for each. add
// makes the i-th edit and returns the new host; from returns the time from which the edit counts, once it is answered.
func (s *stage) answering(e *router.Envoy, n int, every time.Duration,
	add func(i int) (host string, from func() (time.Time, error), err error)) (*gauge.Histogram, error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var failed error
	all := &gauge.Histogram{}
	err := s.schedule(every, time.Duration(n)*every, func(i int, _ time.Time) error {
		host, from, err := add(i)
		if err != nil {
			return err
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(s.ctx, patience)
			defer cancel()
			at, err := e.Answers(ctx, s.mesh.Settings.Port(), host)
			began, err2 := from()
			mu.Lock()
			defer mu.Unlock()
			if err := errors.Join(err, err2); err != nil {
				failed = errors.Join(failed, err)
			} else if i > 0 { // the first is a warm-up
				all.Record(at.Sub(began))
			}
		})
		return nil
	})
	wg.Wait()
	return all, errors.Join(err, failed)
}

// gatewayEnvoy measures the time from an edit until a real Envoy answers by it, and the same of an Envoy whose server
// has nothing to plan.
func gatewayEnvoy(s *stage) error {
	own, rate, err := s.envoyAlone()
	if err != nil {
		return err
	}
	if took := own.Quantile(.5); took > rebuildEvery && s.judged() == 1 { // rebuilds wait for one another: nothing can be compared
		return fmt.Errorf("this machine is too busy: Envoy alone takes %v for one virtual host more", took)
	}
	e, err := s.envoy("gateway", s.servers[0].Addr)
	if err != nil {
		return err
	}
	defer e.Close()
	n, next := s.additions(), s.mesh.Settings.Routes
	add := func(int) (string, func() (time.Time, error), error) {
		edit, host := s.churn.Answer(next)
		next++
		at, err := edit.Apply()
		return host, func() (time.Time, error) {
			_, event, known := s.writer.wrote(s.ctx, edit.Record, at)
			if !known {
				return at, fmt.Errorf("%s: the server does not report its commit", edit.What)
			}
			return event, nil
		}, err
	}
	s.enter("adding routes, one after the other")
	alone, err := s.answering(e, n, 3*rebuildEvery, add)
	if err != nil {
		return err
	}
	s.enter("adding routes, 5 a second")
	fast, err := s.answering(e, n, rebuildEvery, add)
	if err != nil {
		return err
	}
	s.row("Envoy's own rebuild, p99", "ms", ms(own.Quantile(.99)))
	s.row("Envoy's own rebuild, median", "ms", ms(own.Quantile(.5)))
	s.row("Envoy's own at 5 edits a second, p99", "ms", ms(rate.Quantile(.99)))
	s.row("edit to 200, p99", "ms", ms(alone.Quantile(.99)))
	s.row("edit to 200, median", "ms", ms(alone.Quantile(.5)))
	s.row("edit to 200 at 5 edits a second, p99", "ms", ms(fast.Quantile(.99)))
	s.row(rowBeyond, "ms", ms(alone.Quantile(.99)-own.Quantile(.99)))
	s.row(rowBeyondRate, "ms", ms(fast.Quantile(.99)-3*own.Quantile(.99)))
	for name, h := range map[string]*gauge.Histogram{"Envoy's own rebuild": own, "edit to 200": alone, "edit to 200 at 5 edits a second": fast} {
		s.latency(name, h)
	}
	return nil
}

// envoyAlone measures how long an Envoy with the same configuration takes for one virtual host more: alone, and at the
// rate of rebuildEvery.
func (s *stage) envoyAlone() (own, rate *gauge.Histogram, err error) {
	s.enter("recording the configuration")
	configuration := fmt.Sprintf("http.%d", s.mesh.Settings.Port())
	recorded, err := router.Record(s.ctx, s.servers[0].Addr, router.Node(s.mesh.Namespaces()[0], "recorder", mesh.GatewayLabel), configuration)
	if err != nil {
		return nil, nil, fmt.Errorf("record: %w", err)
	}
	plain, err := router.Serve(recorded)
	if err != nil {
		return nil, nil, err
	}
	defer plain.Close()
	e, err := s.envoy("plain", plain.Addr)
	if err != nil {
		return nil, nil, err
	}
	defer e.Close()
	next := 0
	add := func(int) (string, func() (time.Time, error), error) {
		next++
		host := fmt.Sprintf("plain-%d.example.com", next)
		at, err := plain.Add(configuration, host)
		return host, func() (time.Time, error) { return at, nil }, err
	}
	s.enter("Envoy's own rebuild")
	if own, err = s.answering(e, s.additions(), 3*rebuildEvery, add); err != nil {
		return nil, nil, err
	}
	s.enter("Envoy's own, 5 a second")
	rate, err = s.answering(e, s.additions(), rebuildEvery, add)
	return own, rate, err
}

// gatewayFilter measures a real Envoy's memory, which has the clusters alone that its routes need.
func gatewayFilter(s *stage) error {
	e, err := s.envoy("gateway", s.servers[0].Addr)
	if err != nil {
		return err
	}
	defer e.Close()
	edit, host := s.churn.Answer(s.mesh.Settings.Routes)
	if _, err := edit.Apply(); err != nil {
		return err
	}
	if _, err := e.Answers(s.ctx, s.mesh.Settings.Port(), host); err != nil {
		return err
	}
	if err := s.pause("memory settles", s.span(5*time.Second)); err != nil {
		return err
	}
	rss, err := e.RSS()
	if err != nil {
		return err
	}
	s.row(rowEnvoyMemory, "MiB", float64(rss)/(1<<20))
	return nil
}
