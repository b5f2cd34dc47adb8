//go:build kube

package chart

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// needs returns the volumes of Secrets, and the flags of a few names, of a navarchd Pod, without those that all Pods
// have.
func needs(t *testing.T, text string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for pod, spec := range podsOf(t, text) {
		c := spec.Spec.Containers[0]
		if c.Name != "discovery" {
			continue
		}
		var got []string
		for _, v := range spec.Spec.Volumes {
			if v.Secret != nil || v.Name == "kms" {
				got = append(got, v.Name)
			}
		}
		for _, init := range spec.Spec.InitContainers {
			got = append(got, "container "+init.Name)
		}
		for _, arg := range c.Args {
			for _, name := range []string{"--kek", "--etcd-endpoints", "--mesh", "--ca-peers", "--control-plane-accounts", "--tls-cert"} {
				if flag, value, _ := strings.Cut(arg, "="); flag == name {
					if name == "--ca-peers" || name == "--control-plane-accounts" {
						flag += "=" + value
					}
					got = append(got, flag)
				}
			}
		}
		slices.Sort(got)
		all[strings.TrimPrefix(pod, "Deployment ")] = fmt.Sprint(got)
	}
	return all
}

// From size medium on the webhooks have a Deployment of their own, whose processes have neither the key encryption key
// nor etcd: a replica with role ca signs their serving certificate, or it is the issuer's. Webhooks beside other roles
// need no peer.
func TestKubeChartEachRoleHasWhatItNeeds(t *testing.T) {
	t.Parallel()
	const keys = "--etcd-endpoints --kek --mesh"
	for _, c := range []struct {
		args []string
		want map[string]string
	}{
		{[]string{"--set", "size=small"}, map[string]string{"istiod": "[--control-plane-accounts=istiod-admit " + keys + " etcd kek]"}},
		{[]string{"--set", "size=medium"}, map[string]string{"istiod-ingest": "[" + keys + " etcd kek]", "istiod": "[--control-plane-accounts=istiod-admit " + keys + " etcd kek]",
			"istiod-admit": "[--ca-peers=istiod.istio-system.svc:15012]"}},
		{[]string{"--set", "size=large,revision=canary"}, map[string]string{"istiod-canary-ingest": "[" + keys + " etcd kek]", "istiod-canary": "[--control-plane-accounts=istiod-canary-admit " + keys + " etcd kek]",
			"istiod-canary-admit": "[--ca-peers=istiod-canary.istio-system.svc:15012]"}},
		{[]string{"-f", "ci/apart.yaml"}, map[string]string{"istiod-canary-ingest": "[" + keys + " container first container kms etcd kms kms-0]", "istiod-canary": "[" + keys + " container first container kms etcd kms kms-0]",
			"istiod-canary-ca": "[--control-plane-accounts=istiod-canary-admit " + keys + " container first container kms etcd kms kms-0]", "istiod-canary-admit": "[--ca-peers=istiod-canary-ca.istio-system.svc:15012 container first]"}},
		{[]string{"-f", "ci/issuer.yaml", "--set", "size=medium"}, map[string]string{"istiod-ingest": "[" + keys + " etcd kek]", "istiod": "[" + keys + " --tls-cert etcd kek serving]", "istiod-admit": "[--tls-cert serving]"}},
	} {
		got := needs(t, template(t, c.args...))
		for pod, want := range c.want {
			if got[pod] != want {
				t.Errorf("%v: %s has %s, want %s", c.args, pod, got[pod], want)
			}
		}
		if len(got) != len(c.want) {
			t.Errorf("%v: %v", c.args, got)
		}
	}
}

// Pods with role admit alone answer for a minute after SIGTERM: when the role moves to another Deployment, Helm deletes
// theirs before the others are ready.
func TestKubeChartAdmitLeavesLast(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]int64{"size=medium,leaveSeconds=0": 60, "size=medium,leaveSeconds=90": 90} {
		spec := podsOf(t, template(t, "--set", args))["Deployment istiod-admit"].Spec
		if l := spec.Containers[0].Lifecycle; l == nil || l.PreStop.Sleep.Seconds != want || *spec.TerminationGracePeriodSeconds != want+40 {
			t.Errorf("%s: %+v, and ends within %d s", args, l, *spec.TerminationGracePeriodSeconds)
		}
	}
}

// A Deployment may have its own client certificate and user of etcd; the others, and the Job that promotes, have the
// common ones. A Deployment without etcd has neither.
func TestKubeChartEtcdUserOfEachDeployment(t *testing.T) {
	t.Parallel()
	yours := []string{"--set", "size=medium,promote=true,etcd.endpoints={https://etcd:2379},etcd.tls.secretName=all,etcd.auth.secretName=password"}
	of := func(spec corev1.PodSpec) string {
		var got []string
		for _, arg := range spec.Containers[0].Args {
			if user, is := strings.CutPrefix(arg, "--etcd-user="); is {
				got = append(got, user)
			}
		}
		for _, v := range spec.Volumes {
			if strings.HasPrefix(v.Name, "etcd") {
				got = append(got, v.Secret.SecretName)
			}
		}
		return strings.Join(got, " ")
	}
	all := podsOf(t, template(t, append(yours, "--set", "etcd.byDeployment.ingest.tlsSecretName=writer,etcd.byDeployment.ingest.authSecretName=writers,etcd.byDeployment.ingest.user=i,etcd.byDeployment.istiod.user=x")...))
	promotes := ""
	for name, pod := range all {
		if kind, _, _ := strings.Cut(name, " "); kind == "Job" && strings.Contains(name, "promote") {
			promotes = of(pod.Spec)
		}
	}
	for who, c := range map[string]struct{ got, want string }{
		"ingest":  {of(all["Deployment istiod-ingest"].Spec), "i writer writers"},
		"istiod":  {of(all["Deployment istiod"].Spec), "x all password"},
		"admit":   {of(all["Deployment istiod-admit"].Spec), ""},
		"promote": {promotes, "navarch all password"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", who, c.got, c.want)
		}
	}
	for set, want := range map[string]string{
		yours[1] + ",etcd.byDeployment.admit.user=a":  "no Deployment that needs etcd has the name admit, there are: ingest, istiod",
		"size=medium,etcd.byDeployment.ingest.user=i": "for an etcd of yours",
	} {
		h := helm(t)
		if _, err := h.Run(t.Context(), "template", "navarch", h.Dir, "--set", set); err == nil {
			t.Errorf("%s: taken", set)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", set, err, want)
		}
	}
}
