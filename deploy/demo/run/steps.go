package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/deploy/demo/show"
	"navarch.io/navarch/deploy/demo/site"
)

const (
	sampleSize = 2000
	steadyRate = 200
	settle     = 1500 * time.Millisecond // duration in which nothing may happen
	liveLimit  = 15 * time.Second        // time limit for the effect of an edit
)

// demo runs `make demo`.
func demo(ctx context.Context, root, built string) (rows []show.Row, err error) {
	m, err := newMesh(root, "deploy/demo/shop", built)
	if err != nil {
		return nil, err
	}
	defer m.discard(&err)
	m.listen = "127.0.0.1"
	if m.services, err = readServices(m.config); err != nil {
		return nil, err
	}
	egress, err := net.Listen("tcp", m.loopback(m.services.workloads[0]).egress)
	if err != nil {
		return nil, fmt.Errorf("is another demo running? %w", err)
	}
	egress.Close()
	for _, w := range m.services.workloads {
		m.places[w.pod] = m.loopback(w)
	}
	for app, to := range map[string]*workload{"web": &m.front, "istio-ingressgateway": &m.gateway} {
		pods := m.services.of(app, "")
		if len(pods) != 1 {
			return nil, fmt.Errorf("%d Pods with app=%s in deploy/demo/shop, want 1", len(pods), app)
		}
		*to = pods[0]
	}
	if err := errors.Join(m.openSite(), m.choosePorts()); err != nil {
		return nil, err
	}
	fmt.Printf("a gateway and %d workloads, each with its own Envoy; control plane on %s; logs in %s/logs\n\n",
		len(m.services.workloads)-1, m.grpc, m.dir)
	rows = m.play(ctx, m.steps())
	m.finish(ctx, rows, m.hints())
	return rows, nil
}

func (m *mesh) steps() []step {
	return []step{
		{"start", "control plane ready, every Envoy LIVE", m.start},
		{"HTTPS from outside", "gateway -> web, by mTLS; HTTP is redirected", m.fromOutside},
		{"a call through three proxies", "gateway -> web -> catalog answers 200", m.oneCall("catalog/", "catalog")},
		{"a certificate for each workload", "its service account's, from the CA", m.identities},
		{"STRICT: plain text is refused", "catalog's proxy closes the connection", m.plainText("catalog", "/")},
		{"a policy by identity", "catalog answers web, and reviews gets 403", m.forbidden},
		{"split of reviews", split(90, 10), func(ctx context.Context) (string, error) { return m.measureSplit(ctx, 0.10) }},
		{"edit to 50/50, live", "arrives while traffic flows, 0 failed", m.editSplit},
		{"split after the edit", split(50, 50), func(ctx context.Context) (string, error) { return m.measureSplit(ctx, 0.50) }},
		{"another certificate for the host", "presented while traffic flows, 0 failed", m.renewSite},
		{"header route", "x-user: tester gets v2 only", m.headerRoute},
		{"retry hides a failing backend", "0 failed, retries counted", m.retry},
		{"timeout", "504 long before the backend answers", m.timeout},
		{"an endpoint goes away", "0 failed, none served by it", m.endpointGone},
		{"ServiceEntry", "a host outside the mesh answers 200", m.oneCall("quotes/", "quotes")},
		{"control plane killed", "traffic goes on, 0 failed",
			func(ctx context.Context) (string, error) { return m.killControlPlane(ctx, "reviews/") }},
		{"control plane restarted", "0 response bytes, requests only",
			func(ctx context.Context) (string, error) { return m.restartControlPlane(ctx, "reviews/") }},
		{"edit after the restart", "arrives, as many responses as the first edit, 0 failed", m.editBack},
		{"rotation of the root", "every leaf by the next epoch, 0 failed",
			func(ctx context.Context) (string, error) { return m.rotate(ctx, "reviews/") }},
		{"revocation of reviews", "refused within seconds, others served; restored", m.revoke},
	}
}

func split(a, b int) string {
	return fmt.Sprintf("v1 %d %%, v2 %d %% (+-%.1f of %d)", a, b, 100*tolerance(float64(b)/100, sampleSize), sampleSize)
}

// tolerance returns four standard deviations of a share p over n requests: a correct split fails once in 16,000 runs.
func tolerance(p float64, n int) float64 { return 4 * math.Sqrt(p*(1-p)/float64(n)) }

func (m *mesh) start(ctx context.Context) (string, error) {
	began := time.Now()
	took, err := m.startControlPlane(ctx)
	if err != nil {
		return "", err
	}
	if err := m.startWorkloads(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("control plane %d ms, all %d Envoys LIVE after %d ms",
		took.Milliseconds(), len(m.services.workloads), time.Since(began).Milliseconds()), nil
}

func (m *mesh) oneCall(path, name string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		r := m.web.call(ctx, path)
		measured := fmt.Sprintf("status %d from %s %s in %.1f ms", r.status, r.name, r.version, r.took.Seconds()*1000)
		if r.err != nil || r.status != 200 || r.name != name {
			return measured, fmt.Errorf("want 200 from %s: %w", name, errors.Join(r.err))
		}
		return measured, nil
	}
}

func (m *mesh) measureSplit(ctx context.Context, want float64) (string, error) {
	t := m.web.sample(ctx, sampleSize, "reviews/")
	measured := fmt.Sprintf("%s of %d, %d failed", t, t.requests, t.failed)
	if t.failed > 0 {
		return measured, errors.New(t.firstFail)
	}
	if got := t.share("v2"); math.Abs(got-want) > tolerance(want, t.requests) {
		return measured, fmt.Errorf("share of v2 is %.3f, want %.3f +- %.3f", got, want, tolerance(want, t.requests))
	}
	return measured, nil
}

// under runs f during steady traffic to path, and checks that no request fails. Envoy's retries are counted, because
// they could hide a failure.
func (m *mesh) under(ctx context.Context, path string, f func() (string, error)) (string, error) {
	return m.underOf(ctx, path, m.services.workloads, f)
}

// underOf counts the retries of some Envoys only: retries elsewhere may have other causes.
func (m *mesh) underOf(ctx context.Context, path string, counted []workload, f func() (string, error)) (string, error) {
	before, err := m.retries(ctx, counted...)
	if err != nil {
		return "", err
	}
	stop := m.web.steady(ctx, steadyRate, path)
	defer stop()
	measured, err := f()
	t := stop()
	if err != nil {
		return measured, err
	}
	after, err := m.retries(ctx, counted...)
	if err != nil {
		return measured, err
	}
	measured += fmt.Sprintf("; %d requests at %.0f/s, %d failed, %d retried by Envoy", t.requests, t.rate(), t.failed, after-before)
	if t.failed > 0 {
		return measured, errors.New(t.firstFail)
	}
	if t.requests < steadyRate/2 {
		return measured, errors.New("too little traffic to tell")
	}
	return measured, nil
}

func (m *mesh) editSplit(ctx context.Context) (string, error) {
	before, err := m.pages(ctx)
	if err != nil {
		return "", err
	}
	measured, err := m.edit(ctx, 50, 50)
	if err != nil {
		return measured, err
	}
	m.perEdit, err = m.responsesSince(ctx, before)
	return fmt.Sprintf("%s; %d responses in all", measured, m.perEdit), err
}

// editBack edits again, after a restart and the new leader's complete comparison. The proxies must receive no more
// responses than after the first edit.
func (m *mesh) editBack(ctx context.Context) (string, error) {
	measured, err := m.edit(ctx, 90, 10)
	if err != nil {
		return measured, err
	}
	n, err := m.responsesSince(ctx, m.cutOff)
	if err == nil && n != m.perEdit {
		err = fmt.Errorf("the first edit took %d responses", m.perEdit)
	}
	return fmt.Sprintf("%s; %d responses since the restart", measured, n), err
}

func (m *mesh) responsesSince(ctx context.Context, before map[string]agentPage) (int, error) {
	now, err := m.pages(ctx)
	n := 0
	for pod, page := range now {
		n += page.XDS.Total.Responses - before[pod].XDS.Total.Responses
	}
	return n, err
}

// edit changes the weights in the YAML during traffic, and waits until web's proxy has received and acknowledged a
// response.
func (m *mesh) edit(ctx context.Context, v1, v2 float64) (string, error) {
	return m.under(ctx, "reviews/", func() (string, error) {
		pause(ctx, time.Second/2)
		if err := editObject(m.config, "VirtualService",
			"reviews", func(obj map[string]any) error { return setWeights(obj, v1, v2) }); err != nil {
			return "", err
		}
		wrote := time.Now()
		var sent, acked time.Duration
		err := m.children.await(ctx, "the edit", liveLimit, func(ctx context.Context) error {
			page, err := m.page(ctx, m.front)
			if err != nil {
				return err
			}
			s := page.XDS.Streams[len(page.XDS.Streams)-1]
			if s.LastResponse == nil || s.LastResponse.Before(wrote) || s.LastRequest == nil || s.LastRequest.Before(*s.LastResponse) {
				return errors.New("web's proxy was sent nothing yet")
			}
			sent, acked = s.LastResponse.Sub(wrote), s.LastRequest.Sub(wrote)
			return nil
		})
		pause(ctx, time.Second)
		return fmt.Sprintf("at web's proxy after %d ms, acknowledged after %d ms", sent.Milliseconds(), acked.Milliseconds()), err
	})
}

// setWeights sets the weights of every route with two destinations.
func setWeights(obj map[string]any, weights ...float64) error {
	spec, _ := obj["spec"].(map[string]any)
	routes, _ := spec["http"].([]any)
	done := false
	for _, r := range routes {
		rule, _ := r.(map[string]any)
		to, _ := rule["route"].([]any)
		if len(to) != len(weights) {
			continue
		}
		for i, d := range to {
			dest, ok := d.(map[string]any)
			if !ok {
				return errors.New("a destination is no object")
			}
			dest["weight"] = weights[i]
		}
		done = true
	}
	if !done {
		return fmt.Errorf("no route with %d destinations", len(weights))
	}
	return nil
}

func (m *mesh) headerRoute(ctx context.Context) (string, error) {
	t := m.web.sample(ctx, 200, "reviews/", "x-user: tester")
	measured := fmt.Sprintf("%s of %d, %d failed", t, t.requests, t.failed)
	if t.failed > 0 || t.versions["v2"] != t.requests {
		return measured, fmt.Errorf("want all from v2; %s", t.firstFail)
	}
	return measured, nil
}

// retry makes one of the two ratings fail always; half of the requests reach it first.
func (m *mesh) retry(ctx context.Context) (string, error) {
	bad := m.services.of("ratings", "")
	if len(bad) < 2 {
		return "", fmt.Errorf("%d ratings, want 2", len(bad))
	}
	if err := m.configure(ctx, bad[0], "_fail?ratio=1&status=503"); err != nil {
		return "", err
	}
	defer m.configure(context.WithoutCancel(ctx), bad[0], "_fail?ratio=0")
	before, err := m.retries(ctx, m.front)
	if err != nil {
		return "", err
	}
	t := m.web.sample(ctx, 400, "ratings/")
	after, err := m.retries(ctx, m.front)
	measured := fmt.Sprintf("%d requests, %d failed, %d retried by Envoy", t.requests, t.failed, after-before)
	switch {
	case err != nil:
		return measured, err
	case t.failed > 0:
		return measured, errors.New(t.firstFail)
	case after == before:
		return measured, errors.New("no request was retried: the failing backend was never met")
	}
	return measured, nil
}

// timeout makes the backend slower than its route allows.
func (m *mesh) timeout(ctx context.Context) (string, error) {
	const slow = 5 * time.Second
	all := m.services.of("catalog", "")
	for _, w := range all {
		if err := m.configure(ctx, w, fmt.Sprintf("_delay?ms=%d", slow.Milliseconds())); err != nil {
			return "", err
		}
		defer m.configure(context.WithoutCancel(ctx), w, "_delay?ms=0")
	}
	r := m.web.call(ctx, "catalog/")
	measured := fmt.Sprintf("status %d after %d ms (the backend takes %d ms)", r.status, r.took.Milliseconds(), slow.Milliseconds())
	if r.status != 504 || r.took > slow/2 {
		return measured, fmt.Errorf("want 504 within %s: %w", slow/2, errors.Join(r.err))
	}
	return measured, nil
}

// endpointGone removes one address of ratings from the EndpointSlice during traffic, as the end of its Pod would.
func (m *mesh) endpointGone(ctx context.Context) (string, error) {
	gone := m.services.of("ratings", "")[0]
	measured, err := m.under(ctx, "ratings/", func() (string, error) {
		pause(ctx, time.Second/2)
		if err := m.editSlices(gone.ip); err != nil {
			return "", err
		}
		wrote := time.Now()
		err := m.children.await(ctx, "the endpoint's removal", liveLimit, func(ctx context.Context) error {
			page, err := m.page(ctx, m.front)
			if err != nil {
				return err
			}
			if s := page.XDS.Streams[len(page.XDS.Streams)-1]; s.LastResponse == nil || s.LastResponse.Before(wrote) {
				return errors.New("web's proxy was sent nothing yet")
			}
			return nil
		})
		took := time.Since(wrote)
		pause(ctx, time.Second/2)
		return fmt.Sprintf("gone after %d ms", took.Milliseconds()), err
	})
	if err != nil {
		return measured, err
	}
	t := m.web.sample(ctx, 200, "ratings/")
	for host := range t.hosts {
		if hasAddress(host, gone.ip) {
			err = fmt.Errorf("%s still served %d of %d", gone.ip, t.hosts[host], t.requests)
		}
	}
	if t.failed > 0 {
		err = errors.New(t.firstFail)
	}
	return measured, err
}

func (m *mesh) hints() []string {
	web, ctl := "http://"+m.front.ip, m.bin("navarchctl")
	curl := fmt.Sprintf("curl -s --cacert %s --connect-to ::%s:8443", m.siteRoot(), m.gateway.ip)
	return []string{
		fmt.Sprintf("export PATH=%s:$PATH NAVARCH_SERVER=%s     (then navarchctl COMMAND --help has examples that run here)", m.programs, m.http),
		fmt.Sprintf("%s https://%s/call/reviews/", curl, site.Host),
		fmt.Sprintf("%s -H 'x-user: tester' https://%s/call/reviews/", curl, site.Host),
		fmt.Sprintf("$EDITOR %s/*.yaml     (read again when you save)", m.config),
		fmt.Sprintf("%s proxy-status --server %s", ctl, m.http),
		fmt.Sprintf("%s proxy-config listeners --server %s %s.%s", ctl, m.http, m.gateway.pod, m.gateway.namespace),
		fmt.Sprintf("%s proxy-config route --server %s %s.%s", ctl, m.http, m.front.pod, m.front.namespace),
		fmt.Sprintf("%s explain --server %s --proxy %s.%s 'outbound|%d|v2|reviews.backend.svc.cluster.local'",
			ctl, m.http, m.front.pod, m.front.namespace, egressPort),
		fmt.Sprintf("curl -s http://%s/debug/syncz; curl -s %s:15004/debug", m.http, web),
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// editSlices removes an address from its EndpointSlice.
func (m *mesh) editSlices(ip string) error {
	name, err := sliceOf(m.config, ip)
	if err != nil {
		return err
	}
	return editObject(m.config, "EndpointSlice", name, func(obj map[string]any) error {
		list, _ := obj["endpoints"].([]any)
		kept := slices.DeleteFunc(list, func(e any) bool {
			one, _ := e.(map[string]any)
			addresses, _ := one["addresses"].([]any)
			return slices.Contains(addresses, any(ip))
		})
		if len(kept) == 0 {
			return fmt.Errorf("%s is its only endpoint", ip)
		}
		obj["endpoints"] = kept
		return nil
	})
}

// hasAddress reports whether the host of an app's answer, "name/ip:port", has an IP address.
func hasAddress(host, ip string) bool { return strings.Contains(host, "/"+ip+":") }
