package inject

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const absentValue = "(absent)"

func labelled(pairs ...string) map[string]string {
	out := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != absentValue {
			out[pairs[i]] = pairs[i+1]
		}
	}
	return out
}

// Every combination of the deciding settings, compared with the rules in order of precedence: the first rule that
// applies decides.
func TestDecideEveryCombination(t *testing.T) {
	seen := map[string]int{}
	for _, policy := range []string{policyEnabled, policyDisabled} {
		for _, selectors := range []string{"", "never", "always", "both"} {
			s := settings(t, "policy: enabled", "policy: "+policy)
			if selectors == "never" || selectors == "both" {
				s = with(t, s, "neverInjectSelector: []", "neverInjectSelector: [{matchLabels: {job: batch}}]")
			}
			if selectors == "always" || selectors == "both" {
				s = with(t, s, "alwaysInjectSelector: []", "alwaysInjectSelector: [{}, {matchExpressions: [{key: job, operator: Exists}]}]")
			}
			s.Config.Policy = policy
			for _, host := range []bool{false, true} {
				for _, namespace := range []string{"shop", "kube-system", "kube-public", "kube-node-lease", "local-path-storage", "istio-system"} {
					for _, label := range []string{absentValue, "", "true", "false", "yes"} {
						for _, annotation := range []string{absentValue, "true", "false", "no"} {
							pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: labelled("sidecar.istio.io/inject", label, "job", "batch"),
								Annotations: labelled("sidecar.istio.io/inject", annotation)}, Spec: corev1.PodSpec{HostNetwork: host}}
							want, because := expected(host, namespace, label, annotation, selectors, policy)
							got := s.Decide(pod, namespace)
							if got.Inject != want || !strings.Contains(got.Reason, because) || !strings.HasSuffix(got.Reason, ".") {
								t.Errorf("host network %v, namespace %s, label %s, annotation %s, selectors %q, policy %s: %v, %q; want %v, because of %q",
									host, namespace, label, annotation, selectors, policy, got.Inject, got.Reason, want, because)
							}
							seen[because]++
						}
					}
				}
			}
		}
	}
	if len(seen) != 8 {
		t.Errorf("the reasons that were seen: %v", seen)
	}
}

// expected has the rules as Istio's documentation has them; because is a part of the reason.
func expected(host bool, namespace, label, annotation, selectors, policy string) (inject bool, because string) {
	said, kind := annotation, "annotation"
	if label != absentValue {
		said, kind = label, "label"
	}
	switch {
	case host:
		return false, "hostNetwork"
	case namespace != "shop" && namespace != "istio-system":
		return false, "never injected"
	case said == "true", said == "false":
		return said == "true", "the " + kind + " sidecar.istio.io/inject"
	case namespace == "istio-system":
		return false, "control plane's own"
	case selectors == "never", selectors == "both":
		return false, "neverInjectSelector[0]"
	case selectors == "always":
		return true, "alwaysInjectSelector[1]"
	default:
		return policy == policyEnabled, "labels and annotations do not decide, and the policy"
	}
}

// Every combination of labels of namespace and Pod, with the configurations of the default revision, of revision
// canary, and of tag prod for that revision. At most one webhook selects a Pod, and it is the one in Istio's
// documentation.
func TestWebhooksSelectEveryCombination(t *testing.T) {
	for _, everywhere := range []bool{false, true} {
		all := []Webhooks{{Namespace: "istio-system", Everywhere: everywhere}, {Namespace: "istio-system", Revision: "canary"}, {Namespace: "istio-system", Revision: "canary", Tag: "prod"}}
		for _, injection := range []string{absentValue, "enabled", "disabled", "other"} {
			for _, rev := range []string{absentValue, "default", "canary", "prod", "other"} {
				for _, own := range []string{absentValue, "true", "false"} {
					for _, podRev := range []string{absentValue, "default", "canary", "prod", "other"} {
						namespace := labelled("istio-injection", injection, "istio.io/rev", rev, "kubernetes.io/metadata.name", "shop")
						pod := labelled("sidecar.istio.io/inject", own, "istio.io/rev", podRev)
						var got []string
						for _, w := range all {
							c := w.Configuration()
							for i := range c.Webhooks {
								selected, why := Selects(&c.Webhooks[i], namespace, pod)
								if selected {
									got = append(got, c.Name)
								}
								if why == "" {
									t.Fatal("no reason")
								}
							}
						}
						want := selected(everywhere, injection, rev, own, podRev)
						if fmt.Sprint(got) != fmt.Sprint(want) {
							t.Errorf("everywhere %v, istio-injection %s, istio.io/rev %s, Pod's inject %s, istio.io/rev %s: %v, want %v", everywhere, injection, rev, own, podRev, got, want)
						}
					}
				}
			}
		}
	}
}

// selected is the configuration that injects a Pod (https://istio.io/latest/docs/setup/additional-setup/sidecar-injection/#controlling-the-injection-policy).
func selected(everywhere bool, injection, rev, own, podRev string) []string {
	of := map[string]string{"default": "istio-sidecar-injector", "canary": "istio-sidecar-injector-canary", "prod": "istio-revision-tag-prod"}
	one := func(name string) []string {
		if name == "" {
			return nil
		}
		return []string{name}
	}
	switch {
	case own == "false":
		return nil
	case injection == "enabled":
		return one(of["default"])
	case injection != absentValue:
		return nil
	case rev != absentValue:
		return one(of[rev])
	case podRev != absentValue:
		return one(of[podRev])
	case own == "true", everywhere:
		return one(of["default"])
	default:
		return nil
	}
}

func TestWebhooksOfSystemNamespacesAreNotAuto(t *testing.T) {
	c := Webhooks{Namespace: "mesh", Everywhere: true}.Configuration()
	if c.Name != "istio-sidecar-injector-mesh" {
		t.Errorf("name %s", c.Name)
	}
	if n := (Webhooks{Namespace: "istio-system", Revision: "default"}).Name(); n != "istio-sidecar-injector" {
		t.Errorf("the default revision, by its name: %s", n)
	}
	for _, name := range leftOut {
		for i := range c.Webhooks {
			if yes, _ := Selects(&c.Webhooks[i], map[string]string{"kubernetes.io/metadata.name": name}, nil); yes {
				t.Errorf("%s selects Pods of %s that say nothing", c.Webhooks[i].Name, name)
			}
		}
	}
}

func TestParsePath(t *testing.T) {
	for path, want := range map[string]string{
		"/inject":                            "map[]",
		"/inject/":                           "map[]",
		"/inject/cluster/west/net/network-2": "map[ISTIO_META_CLUSTER_ID:west ISTIO_META_NETWORK:network-2]",
		"/inject/net/n1/my_var/a--slash--b":  "map[ISTIO_META_NETWORK:n1 MY_VAR:a/b]",
		"/inject/cluster":                    "has no value",
		"/injected":                          "is not /inject or below",
		"/inject/:ENV:cluster=x:ENV:net=y":   "has no value",
		"/inject/a=b/c":                      "is not the name of a variable",
		"/inject/" + strings.Repeat("x", 1<<20) + "/y": "map[",
	} {
		got, err := ParsePath(path)
		if text := fmt.Sprint(got); err != nil && !strings.Contains(err.Error(), want) || err == nil && !strings.HasPrefix(text, want) {
			t.Errorf("%.60s: %.100s, %v; want %s", path, text, err, want)
		}
	}
}

func TestKnowsSidecars(t *testing.T) {
	old, young := "v1.32.9-gke.1", "v1.33.0+k3s1"
	for _, c := range []struct {
		kubelets map[string]string
		node     string
		want     bool
	}{
		{nil, "", false}, {nil, "a", false},
		{map[string]string{"a": young, "b": "v1.34.1"}, "", true},
		{map[string]string{"a": young, "b": old}, "", false},
		{map[string]string{"a": young, "b": old}, "a", true},
		{map[string]string{"a": young, "b": old}, "b", false},
		{map[string]string{"a": young}, "unknown", true},
		{map[string]string{"a": "v2.0.0"}, "", true},
		{map[string]string{"a": "garbage"}, "", false},
	} {
		if got := KnowsSidecars(c.kubelets, c.node); got != c.want {
			t.Errorf("%v, node %q: %v", c.kubelets, c.node, got)
		}
	}
}
