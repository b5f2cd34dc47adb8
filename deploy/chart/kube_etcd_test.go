//go:build kube

package chart

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/deploy/docs"
	"navarch.io/navarch/deploy/testcluster/cluster"
	"navarch.io/navarch/store/programs"
)

// etcdctl runs in a member's Pod, with the arguments before the command; its error contains the output.
func (i *installation) etcdctl(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return i.Kubectl(ctx, "", append([]string{"exec", "-n", "other", "navarch-etcd-other-0", "--", "etcdctl", "--cacert=/etc/etcd/tls/ca.crt"}, args...)...)
}

var asMember = []string{"--cert=/etc/etcd/tls/tls.crt", "--key=/etc/etcd/tls/tls.key"}

// The chart's own etcd: three members over TLS, which refuse clients without a certificate, with periodic maintenance.
// A member that lost its volume does not rejoin by itself, but by the steps of deploy/docs/installation.md, A member of
// etcd is lost. After the loss of two, a snapshot is restored by the steps of Two members of etcd are lost. Then the
// key encryption key is changed, by the steps of The key that wraps all keys.
func (i *installation) ownEtcd() {
	t := i.t
	i.MustKubectl(t, `{apiVersion: v1, kind: Namespace, metadata: {name: other, labels: {mesh: other, pod-security.kubernetes.io/enforce: restricted}}}`, "apply", "-f", "-")
	i.runIn("other", "install", "other", i.helm.Dir, "-f", "testdata/own-etcd.yaml", "--wait", "--timeout=300s")
	for want, as := range map[bool][]string{false: nil, true: asMember} {
		if out, err := i.etcdctl(append(as, "member", "list", "--command-timeout=2s")...); (err == nil) != want {
			t.Errorf("with the certificate %q: %s, %v", as, out, err)
		}
	}
	i.maintained("defragment")
	i.memberLost()
	i.twoMembersLost()
	i.otherKey()
}

// maintained runs a CronJob of the chart's now.
func (i *installation) maintained(name string) {
	i.MustKubectl(i.t, "", "create", "job", "-n", "other", "--from=cronjob/navarch-etcd-other-"+name, "now-"+name)
	i.MustKubectl(i.t, "", "wait", "-n", "other", "--for=condition=Complete", "job/now-"+name, "--timeout=180s")
	i.at(name)
}

// loses deletes members' volumes, and waits until each has a new one and fails, or is ready. If a leader was elected
// since, it sends a member without data everything; a leader that remembers the member's state makes it panic.
func (i *installation) loses(members ...string) {
	uid := func(kind, name string) string {
		id := i.get("{.metadata.uid}", kind, "-n", "other", name)
		if strings.Contains(id, " ") { // an error message instead of an ID
			return ""
		}
		return id
	}
	was, claims := map[string]string{}, map[string]string{}
	for _, m := range members {
		was[m], claims[m] = uid("pod", m), uid("pvc", "data-"+m)
		i.MustKubectl(i.t, "", "delete", "pvc", "-n", "other", "data-"+m, "--wait=false")
		i.MustKubectl(i.t, "", "delete", "pod", "-n", "other", m, "--wait=false")
	}
	// The old Pod may need half a minute to end, and the new one twice as long to fail: etcd tries for 30 s to resolve the
	// names of its peers, and its own.
	for _, m := range members {
		cluster.Await(i.t, m+" again", func() string {
			switch pod, claim := uid("pod", m), uid("pvc", "data-"+m); {
			case pod == "" || pod == was[m]:
				return "there is no new Pod"
			case claim == "" || claim == claims[m]:
				return "it has its old claim"
			}
			return ""
		})
		cluster.AwaitFor(i.t, 5*time.Minute, m+" without its volume", func() string {
			status := i.get("{.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready} {.status}", "pod", "-n", "other", m)
			if of := strings.SplitN(status, " ", 3); len(of) < 3 || of[0] == "0" && of[1] != "true" {
				return "it has not failed, and is not ready: " + status
			}
			return ""
		})
	}
}

func (i *installation) memberLost() {
	t := i.t
	i.loses("navarch-etcd-other-2")
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
	for _, command := range i.commands("### A member of etcd is lost") {
		if !strings.HasPrefix(command, "etcdctl member remove") && !strings.HasPrefix(command, "etcdctl member add") {
			if !strings.HasPrefix(command, "alias ") && !strings.HasPrefix(command, "etcdctl ") {
				i.does(command)
			}
			continue
		}
		step := strings.Fields(strings.Replace(command, " ID", " "+id, 1))[1:]
		// etcd refuses while its members have been connected for less than 5 s (etcd: --strict-reconfig-check).
		cluster.Await(t, command, func() string {
			if _, err := i.etcdctl(append(asMember, step...)...); err != nil {
				return err.Error()
			}
			return ""
		})
	}
	i.healthy("the member that was replaced")
	for _, command := range i.commands("Once `etcdctl endpoint health --cluster`") {
		i.does(command)
	}
	i.MustKubectl(t, "", "rollout", "status", "-n", "other", "statefulset/navarch-etcd-other", "--timeout=180s")
	i.at("a member was replaced")
}

// healthy waits until all three members answer.
func (i *installation) healthy(what string) {
	cluster.Await(i.t, what, func() string {
		out, err := i.etcdctl(append(asMember, "endpoint", "health", "--cluster")...)
		if err != nil || strings.Count(out, "is healthy") != 3 {
			return fmt.Sprint(out, err, i.get("{.items[*].status.containerStatuses}", "pods", "-n", "other", "-l", "app.kubernetes.io/name=navarch-etcd"))
		}
		return ""
	})
}

// twoMembersLost restores a snapshot after two members were lost. The mesh is the same afterwards: its root, the
// resources of a proxy that stayed connected, and changes after the snapshot.
func (i *installation) twoMembersLost() {
	t := i.t
	i.MustKubectl(t, "{apiVersion: v1, kind: Namespace, metadata: {name: outside, labels: {mesh: other, istio.io/rev: other}}}", "apply", "-f", "-")
	i.MustKubectl(t, webIn(t, "outside"), "apply", "-f", "-")
	if os.Geteuid() == 0 { // sidecars run as a user of their own
		i.MustKubectl(t, "", "wait", "-n", "outside", "--for=condition=Ready", "pod/web", "--timeout=180s")
	}
	i.otherServes()
	root := i.get("{.data.root-cert\\.pem}", "configmap", "-n", "other", "istio-ca-root-cert")
	i.maintained("snapshot-h06")
	i.entry("late")
	i.arrives("late")
	removed := i.stat("envoy_cluster_manager_cluster_removed")

	i.loses("navarch-etcd-other-1", "navarch-etcd-other-2")
	for _, command := range i.commands("### Two members of etcd are lost") {
		i.does(command)
	}
	i.healthy("the members that were restored")
	i.at("a snapshot was restored")
	i.entry("later")
	i.arrives("later")
	i.otherServes()
	if now := i.get("{.data.root-cert\\.pem}", "configmap", "-n", "other", "istio-ca-root-cert"); now != root || !strings.Contains(root, "BEGIN CERTIFICATE") {
		t.Errorf("the root is\n%s\nwas\n%s", now, root)
	}
	if now := i.stat("envoy_cluster_manager_cluster_removed"); now != removed {
		t.Errorf("of the proxy's clusters %s were removed, before %s", now, removed)
	}
	i.at("the mesh is the same")
}

// wrong returns navarchctl's findings about a revision; empty: no findings, and a workload is served as each text of
// joined describes.
func (i *installation) wrong(namespace, revision string, joined ...string) string {
	out, err := exec.CommandContext(i.t.Context(), programs.For(i.t, "navarchctl"), "check", "-i", namespace, "--revision", revision, "--kubeconfig", i.Kubeconfig(), "-o", "json").Output()
	var all []struct{ Check, Status, Found string }
	if wrong := json.Unmarshal(out, &all); wrong != nil {
		return fmt.Sprintf("%v %v %s", err, wrong, out)
	}
	served := map[string]bool{}
	for _, r := range all {
		if strings.HasPrefix(r.Check, "certificate and configuration of a workload, by ") && r.Status == "ok" {
			served[r.Found] = true
		}
		if r.Status == "failure" {
			return fmt.Sprint(r)
		}
	}
	if got := slices.Sorted(maps.Keys(served)); !slices.Equal(got, joined) {
		return fmt.Sprintf("%q: %s", got, out)
	}
	return ""
}

// otherServes waits until navarchctl finds nothing wrong with the second mesh, among other things the CA can sign, and
// clusters are sent; and no alarm is raised about the store.
func (i *installation) otherServes() {
	cluster.Await(i.t, "navarchctl check", func() string {
		if wrong := i.wrong("other", "other", "the CA takes the token and can sign, and clusters were sent"); wrong != "" {
			return wrong
		}
		page := i.page("other", i.get("{.items[*].metadata.name}", "pods", "-n", "other", "-l", "app.kubernetes.io/name=navarchd"))
		for line := range strings.Lines(page) {
			if (strings.HasPrefix(line, "navarch_store_alarm{") || strings.HasPrefix(line, "navarch_store_held{")) && !strings.HasSuffix(line, " 0\n") {
				return line
			}
		}
		if !strings.Contains(page, "navarch_store_alarm{") {
			return "no page: " + page
		}
		return ""
	})
}

// entry makes a ServiceEntry in the second mesh, for which the proxy there gets a cluster.
func (i *installation) entry(name string) {
	i.MustKubectl(i.t, `{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: `+name+`, namespace: outside, labels: {istio.io/rev: other}}, spec: {hosts: [`+name+
		`.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 192.0.2.1}]}}`, "apply", "-f", "-")
}

// arrives waits until the proxy has the cluster of an entry.
func (i *installation) arrives(name string) {
	if os.Geteuid() != 0 {
		return
	}
	cluster.Await(i.t, "the cluster of "+name, func() string {
		out, err := i.Kubectl(i.t.Context(), "", "exec", "-n", "outside", "web", "-c", "istio-proxy", "--", "navarchctl", "proxy-config", "clusters", "--envoy=127.0.0.1:15000")
		if err != nil || !strings.Contains(out, name+".example.com") {
			return fmt.Sprint(out, err)
		}
		return ""
	})
}

// stat returns a counter of the proxy; empty without a proxy.
func (i *installation) stat(name string) string {
	if os.Geteuid() != 0 {
		return ""
	}
	page := i.MustKubectl(i.t, "", "get", "--raw", "/api/v1/namespaces/outside/pods/web:15090/proxy/stats/prometheus")
	_, rest, found := strings.Cut(page, "\n"+name+"{} ")
	value, _, _ := strings.Cut(rest, "\n")
	if !found {
		i.t.Errorf("the proxy has no counter %s", name)
	}
	return value
}

// otherKey changes the key encryption key by the page's steps: everything is sealed under another one afterwards, and
// the root is unchanged.
func (i *installation) otherKey() {
	root := i.get("{.data.root-cert\\.pem}", "configmap", "-n", "other", "istio-ca-root-cert")
	commands := i.commands("**To change the key**")
	if len(commands) != 4 {
		i.t.Fatalf("the page has %q", commands)
	}
	sealed := func() string { // by the line of `navarchctl ca status` that names the key encryption keys in use
		out := i.does(commands[2])
		_, rest, _ := strings.Cut(out, "sealed under: ")
		keys, _, found := strings.Cut(rest, "\n")
		if !found {
			i.t.Errorf("navarchctl ca status says %s", out)
		}
		return keys
	}
	i.does(commands[0])
	was := sealed()
	i.does(commands[1])
	cluster.Await(i.t, "everything sealed under the other key", func() string {
		if now := sealed(); now == was || strings.Contains(now, ",") {
			return now + ", was " + was
		}
		return ""
	})
	i.does(commands[3])
	i.otherServes()
	if now := i.get("{.data.root-cert\\.pem}", "configmap", "-n", "other", "istio-ca-root-cert"); now != root || !strings.Contains(root, "BEGIN CERTIFICATE") {
		i.t.Errorf("the root is\n%s\nwas\n%s", now, root)
	}
	i.at("another key encryption key")
}

// commands returns the commands of deploy/docs/installation.md after a text, adapted to the second mesh's release,
// revision and namespace.
func (i *installation) commands(after string) []string {
	here := strings.NewReplacer("upgrade navarch CHART", "upgrade other "+i.helm.Dir, "istio-system", "other", "deployment/istiod ", "deployment/istiod-other ", "navarch-etcd", "navarch-etcd-other")
	all := docs.Commands(i.t, "installation.md", after)
	for n := range all {
		all[n] = here.Replace(all[n])
	}
	return all
}

// does returns the output of a command of helm or kubectl, which must succeed.
func (i *installation) does(command string) string {
	i.t.Helper()
	args := strings.Fields(strings.ReplaceAll(command, "'", ""))
	switch args[0] {
	case "kubectl":
		return i.MustKubectl(i.t, "", args[1:]...)
	case "helm":
		return i.runIn("other", args[1:]...)
	}
	i.t.Fatalf("nobody runs %q", command)
	return ""
}
