package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/deploy/chart"
	"navarch.io/navarch/deploy/demo/show"
	"navarch.io/navarch/deploy/demo/traffic/count"
	"navarch.io/navarch/deploy/testcluster/cluster"
	"navarch.io/navarch/deploy/testcluster/image"
)

const (
	rate   = 200              // requests per second, minimum
	minute = time.Minute      // minimum duration without failures
	lease  = 10 * time.Second // the leader's lease (--leader-lease)
)

// demo is the state that the steps share.
type demo struct {
	images       image.Table
	chart        string           // path of the packaged chart
	gatewayChart string           // that of gateways
	cluster      *cluster.Cluster // nil: not started
	helm         *chart.Helm
	users        *users // outside of the cluster
	broken       bool   // a step failed that all later steps need
}

// step is one demonstration with its expected result.
type step struct {
	name, expect string
	run          func(context.Context) (measured string, err error)
}

func (d *demo) steps() (all []show.Step) {
	for _, s := range []step{
		{"a cluster of processes", "three nodes are ready", d.needed(d.start)},
		{"helm install", "two ingesters and three replicas are ready", d.needed(d.install)},
		{"the shop", "every Pod is injected by admission, and ready behind its sidecar", d.needed(d.shop)},
		{"a gateway, by its chart", "HTTPS from outside, by the address of its load balancer", d.needed(d.openGateway)},
		{"a wrong VirtualService", "kubectl apply is refused, with the field", d.refused},
		{"mutual TLS", "each workload's proxy names who calls; plain text is refused", d.needed(d.identities)},
		{"a Pod laid out for Istio's own agent", "it joins, and calls by its identity", d.stockPod},
		{"an edit by kubectl apply", "all traffic follows, 0 failed", func(ctx context.Context) (string, error) {
			return d.under(ctx, 0, func(ctx context.Context) (string, error) { return d.edit(ctx, "v1", "v2") })
		}},
		{"a rolling deploy of every workload", "0 failed", func(ctx context.Context) (string, error) { return d.under(ctx, minute, d.roll) }},
		{"the leader is killed", "an edit applies within two leases and 5 s, 0 failed",
			func(ctx context.Context) (string, error) { return d.under(ctx, minute, d.killLeader) }},
		{"a replica is killed", "its proxies move, 0 failed",
			func(ctx context.Context) (string, error) { return d.under(ctx, minute, d.killReplica) }},
		{"a second cluster is added", "endpoints of both answer, 0 failed",
			func(ctx context.Context) (string, error) { return d.under(ctx, 0, d.addCluster) }},
		{"it is taken away",
			"held until an operator accepts it, 0 failed", func(ctx context.Context) (string, error) { return d.under(ctx, 0, d.removeCluster) }},
		{"an autoscaler, under navarch-load", "from 3 to 5 replicas and back, 0 failed",
			func(ctx context.Context) (string, error) { return d.under(ctx, minute, d.scale) }},
		{"helm upgrade to another build", "every process runs it, an edit applies, the same root, 0 failed",
			func(ctx context.Context) (string, error) { return d.under(ctx, minute, d.upgrade) }},
		{"helm rollback", "the build before, an edit applies, the same root, 0 failed",
			func(ctx context.Context) (string, error) { return d.under(ctx, minute, d.rollBack) }},
		{"helm uninstall", "the shop goes on without a control plane, keys and definitions stay, 0 failed",
			func(ctx context.Context) (string, error) { return d.under(ctx, minute, d.uninstall) }},
	} {
		all = append(all, show.Step{Name: s.name, Expect: s.expect, Run: s.run})
	}
	if held() {
		all = all[:len(all)-1] // helm uninstall is left to the user
	}
	return all
}

// needed marks a step that all later steps need.
func (d *demo) needed(run func(context.Context) (string, error)) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		measured, err := run(ctx)
		d.broken = err != nil
		return measured, err
	}
}

// dead returns the reason why the demo cannot continue; nil: it can.
func (d *demo) dead() error {
	if d.cluster == nil || d.broken {
		return errors.New("the steps after it need it")
	}
	select {
	case <-d.cluster.Ended():
		return errors.New("the cluster ended by itself")
	default:
		return nil
	}
}

func (d *demo) start(ctx context.Context) (string, error) {
	began := time.Now()
	c, err := cluster.Start(ctx, cluster.Options{Images: d.images})
	if err != nil {
		return "", err
	}
	d.cluster = c
	if d.helm, err = chart.NewHelm(filepath.Join(c.Dir(), "helm"), c.Kubeconfig()); err != nil {
		return "", err
	}
	return "API server, controllers, DNS and 3 nodes after " + since(began), nil
}

// since returns the elapsed time in seconds, as text.
func since(began time.Time) string { return fmt.Sprintf("%.1f s", time.Since(began).Seconds()) }

func (d *demo) shop(ctx context.Context) (string, error) {
	if err := d.apply(ctx, manifest("shop")); err != nil {
		return "", err
	}
	if err := d.await(ctx, minute, d.asked); err != nil {
		return "", err
	}
	began := time.Now()
	texts := []string{manifest("routing"), subset("v1")}
	var names []string
	for _, w := range workloads {
		texts, names = append(texts, w.manifest()), append(names, w.name)
	}
	if err := d.apply(ctx, append(texts, manifest("client"))...); err != nil {
		return "", err
	}
	if err := d.rolledOut(ctx, "shop", names...); err != nil {
		return "", err
	}
	if _, err := d.kubectl(ctx, "wait", "-n", "shop", "--for=condition=Ready", "pod/client", "--timeout=60s"); err != nil {
		return "", err
	}
	took := since(began)
	n, err := d.injected(ctx)
	return fmt.Sprintf("%d Pods of %d workloads and a client are ready after %s, each with the sidecar that the webhook gave it",
		n, len(workloads), took), err
}

// identities checks that all workloads are called over mTLS under the client's identity, and that a plain-text call
// gets no answer.
func (d *demo) identities(ctx context.Context) (string, error) {
	const client = "URI=spiffe://cluster.local/ns/shop/sa/client"
	measured := ""
	err := d.await(ctx, minute, func(ctx context.Context) error {
		r, err := d.report(ctx)
		if err != nil {
			return err
		}
		for _, w := range append([]string{"reviews"}, names()...) {
			if got := r.Workloads[w]; got == nil || !strings.Contains(got.Caller, client) {
				return fmt.Errorf("%s was not called by %s yet", w, client)
			}
		}
		measured = fmt.Sprintf("%d workloads are called by %s", len(workloads), client)
		return nil
	})
	if err != nil {
		return measured, err
	}
	// The API server calls Pods in plain text, without an identity of the mesh.
	pods, err := d.kubectl(ctx, "get", "pods", "-n", "shop", "-l", "app=web", "-o", "jsonpath={.items[0].metadata.name}")
	if err != nil {
		return measured, err
	}
	if page, err := d.kubectl(ctx, "get", "--raw", "/api/v1/namespaces/shop/pods/"+pods+":8080/proxy/"); err == nil {
		return measured, fmt.Errorf("plain text to web was answered: %s", page)
	}
	return measured + "; plain text to web is refused", nil
}

// names returns the names of the workloads.
func names() (all []string) {
	for _, w := range workloads {
		all = append(all, w.name)
	}
	return all
}

// under runs f and checks the traffic meanwhile: no failures, for a minimum duration, at the promised rate.
func (d *demo) under(ctx context.Context, atLeast time.Duration, f func(context.Context) (string, error)) (string, error) {
	before, err := d.report(ctx)
	if err != nil {
		return "", err
	}
	outside := d.users.watch()
	measured, err := f(ctx)
	var after *count.Report
	for {
		got, wrong := d.report(ctx)
		if wrong != nil {
			return measured, errors.Join(err, wrong)
		}
		after = got
		left := atLeast - after.At.Sub(before.At)
		if left <= 0 || err != nil {
			break
		}
		select {
		case <-ctx.Done():
			return measured, ctx.Err()
		case <-time.After(left):
		}
	}
	span := after.Since(before)
	said, failed := outside()
	return fmt.Sprintf("%s; %v; %s", measured, span, said), errors.Join(err, failed, span.Judge(rate, atLeast))
}

// edit applies the VirtualService of reviews, and waits until the previous version has not answered for 2 s.
func (d *demo) edit(ctx context.Context, from, to string) (string, error) {
	began := time.Now()
	if err := d.apply(ctx, subset(to)); err != nil {
		return "", err
	}
	applied := time.Now()
	followed, err := d.follows(ctx, from, to, applied)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("kubectl apply took %.1f s; the last answer of %s came %d ms after it",
		applied.Sub(began).Seconds(), from, max(followed.Sub(applied), 0).Milliseconds()), nil
}

// follows waits until version `to` of reviews answers, and version `from` has not answered for 2 s. It returns the time
// of the last answer of `from`.
func (d *demo) follows(ctx context.Context, from, to string, after time.Time) (last time.Time, err error) {
	err = d.await(ctx, minute, func(ctx context.Context) error {
		r, err := d.report(ctx)
		if err != nil {
			return err
		}
		reviews := r.Workloads["reviews"]
		if last = reviews.Last[from]; r.At.Sub(last) < 2*time.Second || !reviews.Last[to].After(after) {
			return fmt.Errorf("reviews are answered by %s still", from)
		}
		return nil
	})
	return last, err
}

func (d *demo) roll(ctx context.Context) (string, error) {
	began := time.Now()
	if _, err := d.kubectl(ctx, "rollout", "restart", "deployment", "-n", "shop"); err != nil {
		return "", err
	}
	if err := d.rolledOut(ctx, "shop", names()...); err != nil {
		return "", err
	}
	rolled := since(began)
	// The old Pods serve until their clients have left.
	err := d.await(ctx, 2*minute, func(ctx context.Context) error {
		text, err := d.kubectl(ctx, "get", "pods", "-n", "shop", "-o", "jsonpath={.items[*].metadata.deletionTimestamp}")
		if err == nil && text != "" {
			err = fmt.Errorf("%d old Pods are there", len(strings.Fields(text)))
		}
		return err
	})
	return fmt.Sprintf("all %d Pods are new after %s, the old ones gone after %s", 2*len(workloads), rolled, since(began)), err
}

func (d *demo) killLeader(ctx context.Context) (string, error) {
	leader, err := d.leader(ctx)
	if err != nil {
		return "", err
	}
	if err := d.kill(ctx, leader); err != nil {
		return "", err
	}
	killed := time.Now()
	if err := d.apply(ctx, subset("v1")); err != nil {
		return "", err
	}
	last, err := d.follows(ctx, "v2", "v1", killed)
	if err != nil {
		return "", err
	}
	took := last.Sub(killed)
	measured := fmt.Sprintf("%s was killed; an edit that was made then has applied to all traffic %.1f s later", leader, took.Seconds())
	if limit := 2*lease + 5*time.Second; took > limit {
		return measured, fmt.Errorf("want %v at most", limit)
	}
	next, err := d.leader(ctx)
	if err != nil {
		return measured, err
	}
	return measured + "; " + next + " leads", d.rolledOut(ctx, "istio-system", "istiod-ingest")
}

func (d *demo) killReplica(ctx context.Context) (string, error) {
	before, err := d.metric(ctx, "istiod", "navarch_proxies")
	if err != nil {
		return "", err
	}
	victim, all := "", 0.0
	for _, pod := range slices.Sorted(maps.Keys(before)) {
		all += before[pod]
		if victim == "" || before[pod] > before[victim] {
			victim = pod
		}
	}
	began := time.Now()
	if err := d.kill(ctx, victim); err != nil {
		return "", err
	}
	err = d.await(ctx, minute, func(ctx context.Context) error {
		now, err := d.metric(ctx, "istiod", "navarch_proxies")
		if err != nil {
			return err
		}
		sum := 0.0
		for pod, n := range now {
			if pod != victim {
				sum += n
			}
		}
		if sum < all {
			return fmt.Errorf("%.0f proxies of %.0f are connected", sum, all)
		}
		return nil
	})
	measured := fmt.Sprintf("%s with %.0f of %.0f proxies was killed; all are connected elsewhere after %s",
		victim, before[victim], all, since(began))
	return measured, errors.Join(err, d.rolledOut(ctx, "istio-system", "istiod"))
}

// scale checks that the chart's autoscaler follows the number of proxies per replica.
func (d *demo) scale(ctx context.Context) (string, error) {
	began := time.Now()
	if err := d.apply(ctx, manifest("load")); err != nil {
		return "", err
	}
	err := d.await(ctx, 3*minute, func(ctx context.Context) error { return d.replicas(ctx, 5) })
	if err != nil {
		return "", err
	}
	up := since(began)
	each, err := d.metric(ctx, "istiod", "navarch_proxies")
	if err != nil {
		return "", err
	}
	began = time.Now()
	if _, err := d.kubectl(ctx, "delete", "pod", "-n", "load", "navarch-load", "--timeout=60s"); err != nil {
		return "", err
	}
	err = d.await(ctx, 4*minute, func(ctx context.Context) error { return d.replicas(ctx, 3) })
	return fmt.Sprintf("450 simulated proxies more: 5 replicas are ready after %s, with %s proxies each; without them 3 after %s",
		up, amounts(each), since(began)), err
}

// amounts returns the numbers in ascending order, as text.
func amounts(of map[string]float64) string {
	var all []string
	for _, n := range slices.Sorted(maps.Values(of)) {
		all = append(all, fmt.Sprintf("%.0f", n))
	}
	return strings.Join(all, ", ")
}

// replicas returns nil once the wanted number of replicas is ready.
func (d *demo) replicas(ctx context.Context, want int) error {
	ready, err := d.pods(ctx, "istiod")
	if err != nil {
		return err
	}
	if len(ready) != want {
		text, err := d.kubectl(ctx, "get", "hpa", "-n", "istio-system", "istiod", "-o", "jsonpath={.status}")
		return errors.Join(fmt.Errorf("%d replicas are ready: %s", len(ready), text), err)
	}
	return nil
}

// logs returns the last log lines of the control plane and of the cluster, for a failed step.
func (d *demo) logs() string {
	ctx, cancel := context.WithTimeout(context.Background(), minute)
	defer cancel()
	var all strings.Builder
	for _, args := range [][]string{{"get", "pods", "-A", "-o", "wide"},
		{"logs", "-n", "istio-system", "-l", "app=istiod-ingest", "--tail=20", "--prefix"},
		{"logs", "-n", "istio-system", "-l", "app=istiod", "--tail=20", "--prefix"}, {"logs",
			"-n", "shop", "client", "-c", "istio-proxy", "--tail=20"}} {
		text, err := d.kubectl(ctx, args...)
		fmt.Fprintf(&all, "--- kubectl %s\n%s", strings.Join(args, " "), text)
		if err != nil {
			fmt.Fprintln(&all, err)
		}
	}
	return all.String()
}
