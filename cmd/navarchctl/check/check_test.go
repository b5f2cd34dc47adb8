package check

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/deploy/docs"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/status"
)

const admission = "/apis/admissionregistration.k8s.io/v1/"

// The checked rights are those that the documentation lists for operators.
func TestRightsAreTheDocumented(t *testing.T) {
	want := map[string][]rbacv1.PolicyRule{}
	for document := range strings.SplitSeq(docs.YAML(t, "kubernetes.md", "\n## Rights\n"), "\n---\n") {
		var role struct {
			Kind  string
			Rules []rbacv1.PolicyRule
		}
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		want[role.Kind] = append(want[role.Kind], role.Rules...)
	}
	for kind, rules := range map[string][]rule{"ClusterRole": clusterRules, "Role": namespaceRules} {
		var got []rbacv1.PolicyRule
		for _, r := range rules {
			got = append(got, r.PolicyRule)
		}
		if !reflect.DeepEqual(got, want[kind]) {
			t.Errorf("%s:\n%+v\nwant\n%+v", kind, got, want[kind])
		}
	}
}

// The groups of all records may be listed, their definitions are looked for, and the status of their kinds may be
// written. For a new group or kind the failure names what to extend.
func TestRightsCoverEveryKind(t *testing.T) {
	allowed := func(group, resource, verb string) bool {
		return slices.ContainsFunc(clusterRules, func(r rule) bool {
			return slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, verb)
		})
	}
	groups := map[string]bool{}
	for _, of := range kinds {
		groups[of.group] = true
	}
	for _, k := range model.Kinds() {
		group, kind := k.Object()
		if !model.Defined(group) {
			continue
		}
		if !allowed(group, "*", "list") || !allowed(group, "*", "watch") {
			t.Errorf("no rule lets %s, the group of %s, be listed: clusterRules (rights.go) lacks it", group, kind)
		}
		if !groups[group] {
			t.Errorf("definitions of %s, the group of %s, are not looked for (definitions.go)", group, kind)
		}
	}
	for _, k := range status.IstioKinds {
		plural := strings.ToLower(k.Kind) + "s"
		if stem, is := strings.CutSuffix(plural, "ys"); is && !strings.HasSuffix(stem, "a") {
			plural = stem + "ies"
		}
		if !allowed(k.Group, plural+"/status", "update") {
			t.Errorf("no rule lets %s/status of %s be updated: clusterRules (rights.go) lacks it", plural, k.Group)
		}
	}
}

// The installer's rights to create each kind of object in the chart's templates are checked, except those of the
// Prometheus operator, which a value enables.
func TestInstallsAreTheCharts(t *testing.T) {
	files, err := filepath.Glob("../../../deploy/chart/templates/*")
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]bool{"apiextensions.k8s.io/customresourcedefinitions": true} // their text is not a template
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range regexp.MustCompile(`(?m)^apiVersion: (\S+)\nkind: (\S+)`).FindAllStringSubmatch(string(text), -1) {
			group, _, versioned := strings.Cut(match[1], "/")
			if !versioned {
				group = ""
			}
			plural := strings.ToLower(match[2]) + "s"
			if stem, is := strings.CutSuffix(plural, "ys"); is {
				plural = stem + "ies"
			}
			if group != "monitoring.coreos.com" {
				made[group+"/"+plural] = true
			}
		}
	}
	asked := map[string]bool{}
	for _, i := range installs {
		asked[i.group+"/"+i.resource] = true
	}
	if !maps.Equal(asked, made) || len(made) < 15 {
		t.Errorf("asked about are %q,\nthe chart has %q", slices.Sorted(maps.Keys(asked)), slices.Sorted(maps.Keys(made)))
	}
}

// The oldest Kubernetes that is accepted is that of the chart and of its page; the annotation that is read is the one
// that the chart writes.
func TestNamesAreTheCharts(t *testing.T) {
	for file, want := range map[string]string{
		"../../../deploy/chart/Chart.yaml":                 fmt.Sprintf("kubeVersion: \">=1.%d.0-0 ", oldest),
		"../../../deploy/docs/installation.md":             fmt.Sprintf("on Kubernetes 1.%d or later", oldest),
		"../../../deploy/chart/templates/deployments.yaml": sizeAnnotation + ": ",
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), want) {
			t.Errorf("%s does not say %s", file, want)
		}
	}
}

// signed returns a root, and a certificate for a name that it has signed.
func signed(t *testing.T, name string) (root []byte, leaf tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, DNSNames: []string{name}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

const (
	injector       = "MutatingWebhookConfiguration istio-sidecar-injector, rev.namespace.sidecar-injector.istio.io"
	validator      = "ValidatingWebhookConfiguration istio-validator-istio-system, rev.validation.istio.io"
	serviceAccount = "rights of service account istiod (ingest, xds, ca, admit)"
	calledInjector = "API server to MutatingWebhookConfiguration istio-sidecar-injector"
	calledValid    = "API server to ValidatingWebhookConfiguration istio-validator-istio-system"
	workload       = "certificate and configuration of a workload"
)

const services = "/api/v1/namespaces/istio-system/services/istiod"

// faults are possible faults of a cluster, each with the line that reports it.
var faults = map[string]struct {
	spoil  func(*world)
	line   string
	status Status
	found  string
}{
	"old Kubernetes":       {func(w *world) { w.answers["/version"] = `{"major": "1", "minor": "30+", "gitVersion": "v1.30.1"}` }, "API server", Failure, "v1.30.1"},
	"no API server":        {func(w *world) { delete(w.answers, "/version") }, "API server", Failure, "404"},
	"a kind is not served": {func(w *world) { delete(w.answers, "/apis/security.istio.io/v1beta1") }, "definitions of security.istio.io", Warning, "peerauthentications"},
	"a right is missing":   {func(w *world) { w.denied["create subjectaccessreviews.authorization.k8s.io"] = true }, serviceAccount, Failure, "missing: create subjectaccessreviews"},
	"a role's right alone": {func(w *world) {
		w.answers["/api/v1/namespaces/istio-system/pods"] = podList(`"--roles=xds,ca,admit"`, "")
		w.denied["list services"] = true
	}, "rights of service account istiod (xds, ca, admit)", OK, "no required right is missing"},
	"a right of another role": {func(w *world) {
		w.answers["/api/v1/namespaces/istio-system/pods"] = podList(`"--roles=ingest"`, "")
		w.denied["list configmaps istio-sidecar-injector in istio-system"] = true
	}, "rights of service account istiod (ingest)", OK, "no required right is missing"},
	"an optional right":    {func(w *world) { w.denied["create tokenreviews.authentication.k8s.io"] = true }, serviceAccount + ", for navarchctl removals accept, and --token-review", OK, "goes without: create tokenreviews"},
	"pods may not be seen": {func(w *world) { w.answers["/api/v1/namespaces/istio-system/pods"] = 403 }, "replicas", Unknown, "you lack the right to read this"},
	"no Pods":              {func(w *world) { w.answers["/api/v1/namespaces/istio-system/pods"] = `{}` }, "replicas", Failure, "has no Pod of a control plane"},
	"no replica": {func(w *world) {
		w.answers["/api/v1/namespaces/istio-system/pods"] = strings.Replace(podList("", ""), `"True"`, `"False"`, 1)
	}, "replicas", Failure, "none is ready: a (unknown, not ready)"},
	"nobody leads":           {func(w *world) { w.leader = `{"name": "", "self": false}` }, "leader", Failure, "no process leads"},
	"who leads is not there": {func(w *world) { w.leader = `{"name": "b", "self": false}` }, "leader", Failure, "b leads, as Pod a says, and is not among the ready replicas"},
	"the leader is ending": {func(w *world) {
		w.leader = `{"name": "b", "self": false}`
		w.answers["/api/v1/namespaces/istio-system/pods"] = strings.Replace(podList("", ""), `{"items": [`, `{"items": [{"metadata": {"name": "b", "labels": {"istio.io/rev": "default"}, "deletionTimestamp": "2026-01-02T03:04:05Z"}, "spec": {"serviceAccountName": "istiod"}}, `, 1)
	}, "leader", Warning, "b leads, and is being deleted"},
	"the leader is behind":     {func(w *world) { w.leader = `{"name": "a", "self": true, "read": "2026-01-02T03:04:05Z"}` }, "leader", Failure, "what it has stored of the cluster is"},
	"the leader has not read":  {func(w *world) { w.leader = `{"name": "a", "self": true}` }, "leader", Warning, "has not read the whole cluster yet"},
	"the leader has just read": {func(w *world) { w.leader = `{"name": "a", "self": true, "settled": true}` }, "leader", OK, "has stored everything"},
	"the leader is refused": {func(w *world) {
		w.say = `[{"object": "ConfigMap a/istio-ca-root-cert", "location": "Kubernetes", "severity": "error", "message": "forbidden"}]`
	}, "writes to Kubernetes", Failure, "ConfigMap a/istio-ca-root-cert: forbidden"},
	"a policy does not apply": {func(w *world) {
		w.say = `[{"object": "AuthorizationPolicy a/b", "severity": "error", "message": "not valid: what it selects is closed"}]`
	}, "policies", Failure, "AuthorizationPolicy a/b: not valid"},
	"the API server does not reach the validator": {func(w *world) {
		w.answers[dryRunOfGateway] = errors.New(`failed calling webhook "rev.validation.istio.io": timeout`)
	}, calledValid, Failure, "timeout"},
	"the validator is not asked":        {func(w *world) { w.answers[dryRunOfGateway] = `{}` }, calledValid, Failure, "the webhook was not called"},
	"somebody else refuses the Gateway": {func(w *world) { w.answers[dryRunOfGateway] = errors.New("quota") }, calledValid, Unknown, "quota"},
	"Pod security refuses what was injected": {func(w *world) {
		w.answers[dryRunOfPod] = errors.New(`violates PodSecurity "restricted": container "istio-init" must set securityContext`)
	}, calledInjector, OK, "added a proxy"},
	"the injector is not asked":                    {func(w *world) { w.answers[dryRunOfPod] = `{}` }, calledInjector, Failure, "added no proxy"},
	"a webhook of a revision that has left no Pod": {replaced("mutatingwebhookconfigurations", `"istio.io/rev": "default"`, `"istio.io/rev": "old"`), injector, Failure, "belongs to revision old, which has no Pods"},
	"more proxies than the size is for":            {sized("6"), "proxies", Warning, "7 are connected, and the installed size is for 6"},
	"as many as the size is for":                   {sized("7"), "proxies", OK, "7 are connected, of 7 that"},
	"a size without room":                          {sized("0"), "proxies", Warning, "7 are connected, and the installed size is for 0"},
	"no page of the fleet":                         {func(w *world) { w.fleet = "off" }, "proxies", Unknown, "Pod a: "},
	"a replica is not ready":                       {func(w *world) { w.ready = "sealed" }, "Pod a", Failure, "not ready: sealed"},
	"a note":                                       {func(w *world) { w.ready = "ok\nno signatures" }, "Pod a", Warning, "no signatures"},
	"its clock":                                    {func(w *world) { w.date = -time.Hour }, "clock of Pod a", Failure, "1h0m"},
	"etcd fills":                                   {func(w *world) { w.say = `[{"object": "etcd", "severity": "warning", "message": "it is at 85 %"}]` }, "etcd", Warning, "85 %"},
	"a held removal": {func(w *world) {
		w.say = `[{"object": "VirtualService", "code": "Held", "severity": "warning", "message": "7 objects have lost the definition of their kind"}]`
	}, "held removals", Warning, "7 objects have lost"},
	"etcd is full, then more": {func(w *world) {
		w.say = `[{"object": "etcd", "severity": "error", "message": "it is full"}, {"object": "etcd", "severity": "warning", "message": "more"}]`
	}, "etcd", Failure, "full"},
	"etcd is full":   {func(w *world) { w.say = `[{"object": "etcd", "severity": "error", "message": "it is full"}]` }, "etcd", Failure, "full"},
	"other problems": {func(w *world) { w.say = `[{"object": "VirtualService a/b", "severity": "error", "message": "x"}]` }, "configuration", Warning, "1 errors: VirtualService a/b: x"},
	"no Service":     {func(w *world) { delete(w.answers, services) }, injector, Failure, "Service istio-system/istiod, which the webhook calls: "},
	"no port":        {func(w *world) { w.answers[services] = `{"spec": {"ports": [{"port": 15012}]}}` }, validator, Failure, "has no port 443"},
	"no endpoint": {func(w *world) {
		w.answers["/apis/discovery.k8s.io/v1/namespaces/istio-system/endpointslices"] = `{"items": [{"endpoints": [{"conditions": {"ready": false}}]}]}`
	},
		injector, Failure, "has no ready endpoint"},
	"no caBundle": {replaced("mutatingwebhookconfigurations", `"caBundle"`, `"other"`), injector, Failure, "caBundle is empty"},
	"another root": {func(w *world) {
		w.answers[admission+"validatingwebhookconfigurations"] = strings.Replace(w.answers[admission+"validatingwebhookconfigurations"].(string),
			`"caBundle": "`, `"caBundle": "`+base64.StdEncoding.EncodeToString(w.another)+`", "not": "`, 1)
	}, validator, Failure, "certificate signed by unknown authority"},
	"it fails open": {replaced("validatingwebhookconfigurations", `"Fail"`, `"Ignore"`), validator, Warning, "wrong objects pass"},
	"no webhook":    {func(w *world) { w.answers[admission+"mutatingwebhookconfigurations"] = `{}` }, "MutatingWebhookConfiguration", Warning, "Pods get no proxies"},
	"no roots":      {func(w *world) { delete(w.answers, "/api/v1/namespaces/istio-system/configmaps/istio-ca-root-cert") }, workload, Failure, "istio-ca-root-cert"},
	"no roots of a signer": {func(w *world) {
		delete(w.answers, "/api/v1/namespaces/istio-system/configmaps/istio-ca-root-cert")
		w.answers["/api/v1/namespaces/istio-system/pods"] = podList(`"--roles=xds,ca"`, `{"name": "EXTERNAL_CA", "value": "ISTIOD_RA_KUBERNETES_API"}`)
	}, workload, Unknown, "istio-ca-root-cert"},
	"no roots of another CA": {func(w *world) {
		delete(w.answers, "/api/v1/namespaces/istio-system/configmaps/istio-ca-root-cert")
		w.answers["/api/v1/namespaces/istio-system/pods"] = podList(`"--roles=xds"`, "")
	}, workload, Unknown, "istio-ca-root-cert"},
	"a gateway without Pods": {func(w *world) { w.answers["/api/v1/pods"] = `{}` }, "gateways", Warning, "Gateway edge/shop: no Pod has the labels istio=ingressgateway"},
	"a gateway without its Secrets": {func(w *world) { w.denied["list secrets in edge"] = true }, "gateways", Warning,
		"Gateway edge/shop: service account edge/gw of its Pods may not list Secrets"},
	"a Secret that the ingester may not read": {func(w *world) { w.denied["list secrets shop-cert in edge"] = true },
		"secrets of gateways", Warning, "may not read Secret edge/shop-cert of Gateway edge/shop"},
	"a gateway that needs no Secrets": {func(w *world) {
		w.denied["list secrets in edge"] = true
		w.answers[gatewaysPath] = strings.Replace(w.answers[gatewaysPath].(string), `"mode": "SIMPLE", "credentialName": "shop-cert"`, "", 1)
	}, "gateways", OK, "1 Gateways are for 1 Pods"},
	"a certificate by SDS": {func(w *world) {
		w.answers[gatewaysPath] = strings.Replace(w.answers[gatewaysPath].(string), "shop-cert", "sds://shop", 1)
	}, "gateways", Warning, "credentialName sds://shop is not served yet"},
	"a Gateway of the Gateway API": {func(w *world) {
		w.answers["/apis/gateway.networking.k8s.io/v1/gateways"] = `{"items": [{"metadata": {"namespace": "a", "name": "b"}}]}`
	}, "gateways", Warning, "Gateway a/b of the Gateway API is not served yet"},
	"Gateways may not be seen": {func(w *world) { w.answers[gatewaysPath] = 403 }, "gateways", Unknown, "you lack the right to read this"},
	"no token to be":           {func(w *world) { w.answers["/api/v1/namespaces/istio-system/serviceaccounts/default/token"] = 403 }, workload, Unknown, "you lack the right to read this"},
}

// In a cluster without faults every line is ok, except the workload's, which has no secure address here. Each fault
// changes its own line, and is named there.
func TestRun(t *testing.T) {
	w, leaf := well(t)
	good := w.results(t, leaf, false)
	if len(good) < 10 {
		t.Errorf("%d lines", len(good))
	}
	for name, r := range good {
		if r.Status != OK && name != workload {
			t.Errorf("%+v", r)
		}
	}
	for name, one := range faults {
		w, leaf := well(t)
		one.spoil(w)
		got := w.results(t, leaf, false)
		line := got[one.line]
		if line.Status != one.status || !strings.Contains(line.Found, one.found) {
			t.Errorf("%s: %+v, want %s %q", name, line, one.status, one.found)
		}
		want := slices.Clone(also[name])
		if line.Status == Warning || line.Status == Failure {
			want = append(want, one.line)
		}
		var red []string
		for check, r := range got {
			own := one.line == workload || check != workload // there is no secure address here
			if (r.Status == Warning || r.Status == Failure) && own {
				red = append(red, check)
			}
		}
		slices.Sort(red)
		slices.Sort(want)
		if !slices.Equal(red, want) {
			t.Errorf("%s turns red %q, want %q", name, red, want)
		}
	}
}

// also has the lines that a fault turns red besides its own, because they follow from it.
var also = map[string][]string{
	"no Service": {validator}, "no endpoint": {validator}, "no port": {injector}, // one Service has both
	"the leader is ending": {"replicas"}, // its Pod is not ready
	"no replica":           {"leader", injector, validator},
	// The only Pod has not all roles.
	"a role's right alone": {"leader"}, "a right of another role": {injector, validator},
	"no roots of a signer": {"leader", injector, validator}, "no roots of another CA": {"leader", injector, validator},
	"a webhook of a revision that has left no Pod": {"MutatingWebhookConfiguration"}, // of the revision that is left
}

// Two revisions in one namespace are examined separately, each by its own names: objects of one are no fault of the
// other.
func TestRevisionsAreExaminedApart(t *testing.T) {
	w, leaf := well(t)
	pod := func(name, revision string) string {
		return fmt.Sprintf(`{"metadata": {"name": %q, "labels": {"istio.io/rev": %q}}, "spec": {"serviceAccountName": "istiod", "containers": [{}]},
			"status": {"conditions": [{"type": "Ready", "status": "True"}]}}`, name, revision)
	}
	w.answers["/api/v1/namespaces/istio-system/pods"] = fmt.Sprintf(`{"items": [%s, %s]}`, pod("a", "default"), pod("b", "canary"))
	w.denied["list configmaps istio-canary in istio-system"] = true
	failed := []string{}
	for name, r := range w.results(t, leaf, false) {
		if r.Status == Failure && !strings.HasSuffix(name, workload) { // there is no secure address here
			failed = append(failed, name+": "+r.Found)
		}
	}
	if want := []string{"revision canary, rights of service account istiod (ingest, xds, ca, admit): missing: list configmaps istio-canary in istio-system"}; !slices.Equal(failed, want) {
		t.Errorf("%q, want %q", failed, want)
	}
}

// sized sets the chart's annotation of the Pod.
func sized(proxies string) func(*world) {
	return func(w *world) {
		w.answers["/api/v1/namespaces/istio-system/pods"] = strings.Replace(podList("", ""), `"labels"`, `"annotations": {"navarch.io/proxies": "`+proxies+`"}, "labels"`, 1)
	}
}

func replaced(of, old, with string) func(*world) {
	return func(w *world) {
		w.answers[admission+of] = strings.Replace(w.answers[admission+of].(string), old, with, 1)
	}
}

// Before a control plane exists, obstacles and missing rights of the installer are reported.
func TestPre(t *testing.T) {
	w, leaf := well(t)
	got := w.results(t, leaf, true)
	if r := got["existing control planes"]; r.Status != Warning || !strings.Contains(r.Found, "istio-sidecar-injector, istio-validator-istio-system") {
		t.Errorf("%+v", r)
	}
	if r := got["your rights to install"]; r.Status != OK {
		t.Errorf("%+v", r)
	}
	w.answers = map[string]any{"/version": w.answers["/version"], admission + "mutatingwebhookconfigurations": `{}`, admission + "validatingwebhookconfigurations": `{}`}
	w.denied = map[string]bool{"create clusterroles.rbac.authorization.k8s.io": true, "list secrets in istio-system": true}
	got = w.results(t, leaf, true)
	if r := got["your rights to install"]; r.Status != Failure || !strings.Contains(r.Found, "create clusterroles.rbac.authorization.k8s.io") {
		t.Errorf("%+v", r)
	}
	if r := got["your rights to install, for other clusters"]; r.Status != Warning || !strings.Contains(r.Found, "list secrets in istio-system") {
		t.Errorf("%+v", r)
	}
	for _, name := range []string{"existing control planes", "definitions of networking.istio.io", "API server"} {
		if r := got[name]; r.Status != OK {
			t.Errorf("%+v", r)
		}
	}
	if !Failed([]Result{{Status: OK}, {Status: Failure}}) || Failed([]Result{{Status: Warning}, {Status: Unknown}}) {
		t.Error("what failed is not told from what did not")
	}
	if got["Pod a"].Check != "" {
		t.Error("a replica was asked")
	}
}
