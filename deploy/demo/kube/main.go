// Command kube is `make demo-kube`. It starts a Kubernetes cluster of processes, and runs the control plane and a small
// shop with sidecars in it as Deployments. Then it demonstrates the control plane in steps, each of which is measured
// and checked, and ends everything. Exit code 0 means that every step passed.
//
// Owns: one cluster (deploy/testcluster). Reads: bin, .tools. Never: changes anything on this machine outside of the
// cluster.
//
// HOLD=1 keeps the cluster up after the steps, except the last one, and prints commands to try.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"navarch.io/navarch/deploy/demo/show"
	"navarch.io/navarch/deploy/demo/site"
	"navarch.io/navarch/deploy/testcluster/cluster"
	"navarch.io/navarch/deploy/testcluster/image"
)

// patience limits the duration of the demo without HOLD.
const patience = 25 * time.Minute

func main() {
	cluster.Init()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	failed, err := run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo-kube:", err)
	}
	if failed || err != nil {
		os.Exit(1)
	}
}

// run runs the steps; failed reports that a step did not pass.
func run(ctx context.Context) (failed bool, err error) {
	if os.Geteuid() != 0 {
		return false, errors.New("it needs root: the sidecars run as a user of their own (1337), by which redirection tells their " +
			"traffic from the applications'")
	}
	images, err := built()
	if err != nil {
		return false, err
	}
	d := &demo{images: images}
	for name, into := range map[string]*string{"navarch": &d.chart, "gateway": &d.gatewayChart} {
		packages, err := filepath.Glob(filepath.Join("out", name+"-*.tgz"))
		if err != nil || len(packages) != 1 {
			return false, fmt.Errorf("run this by `make demo-kube`, which packages the charts: out has %q", packages)
		}
		*into = packages[0]
	}
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, patience)
	rows := show.Play(limited, os.Stdout, d.steps(), d.dead)
	cancel()
	if d.cluster != nil {
		d.hold(ctx)
		if show.Failed(rows) {
			fmt.Println(d.logs())
		}
		fmt.Print("ending the cluster ... ")
		d.cluster.Close()
		fmt.Println("done")
	}
	show.Summary(os.Stdout, rows)
	fmt.Printf("in %d s\n", int(time.Since(began).Seconds()))
	return show.Failed(rows), ctx.Err()
}

// held reports whether the cluster should stay up at the end.
func held() bool { return os.Getenv("HOLD") == "1" }

// hold waits for Ctrl-C if HOLD=1.
func (d *demo) hold(ctx context.Context) {
	if !held() || ctx.Err() != nil {
		return
	}
	fmt.Printf("\nHOLD=1: the cluster stays up until Ctrl-C. Try:\n  export KUBECONFIG=%s\n", d.cluster.Kubeconfig())
	for _, hint := range []string{
		".tools/bin/kubectl get pods -A -o wide",
		fmt.Sprintf("nsenter -t %d -n curl -s --cacert %s --connect-to ::%s https://%s/", d.cluster.PID(), d.siteRoot(), d.users, site.Host),
		".tools/bin/kubectl exec -n shop client -c traffic -- traffic report",
		".tools/bin/kubectl exec -n shop client -c istio-proxy -- curl -s 127.0.0.1:15000/clusters",
		".tools/bin/kubectl port-forward -n istio-system deployment/istiod 8080 &  bin/navarchctl proxy-status",
		".tools/bin/helm uninstall navarch -n istio-system",
	} {
		fmt.Println("  " + hint)
	}
	select {
	case <-ctx.Done():
	case <-d.cluster.Ended():
		fmt.Println("the cluster ended by itself")
	}
}

// built returns the images from the programs that `make demo-kube` has built. The image of pilot-agent has Istio's
// name, and that of navarchd-next is navarchd's with the tag next.
func built() (image.Table, error) {
	local := map[string]string{"pilot-agent": filepath.Join("deploy", "demo", "kube", "pilot-agent.sh")}
	for _, name := range []string{"etcd", "navarchd", "navarchd-next", "navarchctl", "navarch-agent", "navarch-load", "traffic"} {
		local[name] = filepath.Join("bin", name)
	}
	for _, name := range []string{"etcdctl", "etcdutl", "kube-apiserver", "kubectl"} {
		local[name] = filepath.Join(".tools", "bin", name)
	}
	local["envoy"] = cmp.Or(os.Getenv("NAVARCH_ENVOY"), filepath.Join(".tools", "bin", "envoy"))
	images := image.Product()
	maps.Copy(images,
		map[string][]string{"navarchd:" + next: {"navarchd-next", "navarchctl"}, "proxyv2": {"pilot-agent", "navarch-agent", "envoy"},
			"navarch-load": {"navarch-load"}, "traffic": {"traffic"}, "kube-apiserver": {"kube-apiserver", "kubectl", "navarchctl"}})
	all, err := image.Of(images, local)
	if err != nil {
		return nil, fmt.Errorf("run this by `make demo-kube`, which builds the programs: %w", err)
	}
	return all, nil
}
