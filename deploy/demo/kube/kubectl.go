package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"navarch.io/navarch/deploy/demo/traffic/count"
)

// kubectl runs kubectl as administrator and returns its output.
func (d *demo) kubectl(ctx context.Context, args ...string) (string, error) {
	return d.cluster.Kubectl(ctx, "", args...)
}

// apply runs `kubectl apply -f` with the texts.
func (d *demo) apply(ctx context.Context, texts ...string) error {
	_, err := d.cluster.Kubectl(ctx, strings.Join(texts, "\n---\n"), "apply", "-f", "-")
	return err
}

// rolledOut waits until all Pods of the Deployments are ready and of the newest version, and old Pods no longer count.
func (d *demo) rolledOut(ctx context.Context, namespace string, deployments ...string) error {
	for _, name := range deployments {
		if _, err := d.kubectl(ctx, "rollout", "status", "-n", namespace, "deployment/"+name, "--timeout=180s"); err != nil {
			return err
		}
	}
	return nil
}

// await calls f repeatedly until it returns nil, up to a time limit; the error contains f's last one.
func (d *demo) await(ctx context.Context, limit time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %v: %w", limit, err)
		case <-d.cluster.Ended():
			return errors.Join(errors.New("the cluster has ended"), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// report returns the counts of the shop's client.
func (d *demo) report(ctx context.Context) (*count.Report, error) {
	text, err := d.kubectl(ctx, "exec", "-n", "shop", "client", "-c", "traffic", "--", "traffic", "report")
	if err != nil {
		return nil, err
	}
	r := &count.Report{}
	return r, json.Unmarshal([]byte(text), r)
}

// pods returns the names of ready Pods of an app in istio-system.
func (d *demo) pods(ctx context.Context, app string) ([]string, error) {
	text, err := d.kubectl(ctx, "get", "pods", "-n", "istio-system", "-l", "app="+app, "-o", "json")
	if err != nil {
		return nil, err
	}
	return readyPods([]byte(text))
}

// readyPods returns the names of ready Pods in a PodList.
func readyPods(text []byte) (names []string, err error) {
	var list struct {
		Items []struct {
			Metadata struct{ Name, DeletionTimestamp string }
			Status   struct {
				Conditions []struct{ Type, Status string }
			}
		}
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	for _, p := range list.Items {
		ready := slices.ContainsFunc(p.Status.Conditions,
			func(c struct{ Type, Status string }) bool { return c.Type == "Ready" && c.Status == "True" })
		if ready && p.Metadata.DeletionTimestamp == "" {
			names = append(names, p.Metadata.Name)
		}
	}
	return names, nil
}

// metric returns the value of a metric for each ready Pod of an app: the sum over all labels.
func (d *demo) metric(ctx context.Context, app, name string) (map[string]float64, error) {
	names, err := d.pods(ctx, app)
	if err != nil {
		return nil, err
	}
	all := map[string]float64{}
	for _, pod := range names {
		page, err := d.metrics(ctx, pod)
		if err != nil {
			return nil, err
		}
		all[pod] = sum(page, name)
	}
	return all, nil
}

// metrics returns the metrics page of a Pod in istio-system.
func (d *demo) metrics(ctx context.Context, pod string) (string, error) {
	return d.kubectl(ctx, "get", "--raw", "/api/v1/namespaces/istio-system/pods/"+pod+":15014/proxy/metrics")
}

// sum adds the samples of one metric of a page in Prometheus' format.
func sum(page, name string) (sum float64) {
	lines := bufio.NewScanner(strings.NewReader(page))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err == nil {
			sum += value
		}
	}
	return sum
}

// leader returns the name of the ingester that leads.
func (d *demo) leader(ctx context.Context) (string, error) {
	all, err := d.metric(ctx, "istiod-ingest", "navarch_leader")
	if err != nil {
		return "", err
	}
	for pod, leads := range all {
		if leads == 1 {
			return pod, nil
		}
	}
	return "", fmt.Errorf("no ingester of %d leads", len(all))
}

// kill ends a Pod of istio-system by SIGKILL and deletes its object at once, like the loss of a node.
func (d *demo) kill(ctx context.Context, pod string) error {
	_, err := d.kubectl(ctx, "delete", "pod", "-n", "istio-system", pod, "--force", "--grace-period=0")
	return err
}
