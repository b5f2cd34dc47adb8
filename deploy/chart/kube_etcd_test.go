//go:build kube

package chart

import (
	"context"
	"strings"
	"time"

	"navarch.io/navarch/deploy/testcluster/cluster"
)

// etcdctl runs in a member's Pod, with the arguments that come before the command; it fails with what it printed.
func (i *installation) etcdctl(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return i.Kubectl(ctx, "", append([]string{"exec", "-n", "other", "navarch-etcd-other-0", "--", "etcdctl", "--cacert=/etc/etcd/tls/ca.crt"}, args...)...)
}

var asMember = []string{"--cert=/etc/etcd/tls/tls.crt", "--key=/etc/etcd/tls/tls.key"}

// An etcd of the chart's: three members over TLS, which let nobody in without a certificate; its maintenance runs; and a member whose disk was
// lost does not come back by itself, but does by the steps of deploy/docs/installation.md, A member of etcd is lost.
func (i *installation) ownEtcd() {
	t := i.t
	i.MustKubectl(t, `{apiVersion: v1, kind: Namespace, metadata: {name: other, labels: {pod-security.kubernetes.io/enforce: restricted}}}`, "apply", "-f", "-")
	i.runIn("other", "install", "other", i.helm.Dir, "-f", "testdata/own-etcd.yaml", "--wait", "--timeout=120s")
	for want, as := range map[bool][]string{false: nil, true: asMember} {
		if out, err := i.etcdctl(append(as, "member", "list", "--command-timeout=2s")...); (err == nil) != want {
			t.Errorf("with the certificate %q: %s, %v", as, out, err)
		}
	}
	i.MustKubectl(t, "", "create", "job", "-n", "other", "--from=cronjob/navarch-etcd-other-defragment", "now")
	i.MustKubectl(t, "", "wait", "-n", "other", "--for=condition=Complete", "job/now", "--timeout=60s")
	i.at("defragmented")

	i.MustKubectl(t, "", "delete", "pod", "-n", "other", "navarch-etcd-other-2", "--wait")
	cluster.Await(t, "a member without its disk", func() string {
		if out := i.get("{.status.containerStatuses[0].restartCount}", "pod", "-n", "other", "navarch-etcd-other-2"); out == "" || out == "0" || strings.Contains(out, " ") {
			return "it has not failed: " + out
		}
		return ""
	})
	list, err := i.etcdctl(append(asMember, "member", "list")...)
	if err != nil {
		t.Fatal(err)
	}
	id := ""
	for line := range strings.Lines(list) {
		if strings.Contains(line, "navarch-etcd-other-2") {
			id, _, _ = strings.Cut(line, ",")
		}
	}
	const peer = "--peer-urls=https://navarch-etcd-other-2.navarch-etcd-other-peers.other.svc:2380"
	for _, step := range [][]string{{"member", "remove", id}, {"member", "add", "navarch-etcd-other-2", peer}} {
		// etcd refuses while its members have been connected for less than 5 s (etcd: --strict-reconfig-check).
		cluster.Await(t, strings.Join(step, " "), func() string {
			if _, err := i.etcdctl(append(asMember, step...)...); err != nil {
				return err.Error()
			}
			return ""
		})
	}
	// The other members have no disks, which a restart would cost them.
	i.MustKubectl(t, "", "patch", "statefulset", "-n", "other", "navarch-etcd-other", "-p", `{"spec": {"updateStrategy": {"rollingUpdate": {"partition": 2}}}}`)
	i.runIn("other", "upgrade", "other", i.helm.Dir, "--reuse-values", "--set", "etcd.own.initialClusterState=existing")
	cluster.Await(t, "the member that was replaced", func() string {
		out, err := i.etcdctl(append(asMember, "endpoint", "health", "--cluster")...)
		if err != nil || strings.Count(out, "is healthy") != 3 {
			return out + i.get("{.status}", "pod", "-n", "other", "navarch-etcd-other-2")
		}
		return ""
	})
	i.at("a member was replaced")
}
