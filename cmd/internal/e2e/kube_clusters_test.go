//go:build kube

package e2e

import (
	"context"
	"encoding/base64"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	kuberest "k8s.io/client-go/rest"

	"navarch.io/navarch/deploy/testcluster/controlplane"
	"navarch.io/navarch/deploy/testcluster/rights"
	"navarch.io/navarch/push/xds"
)

// reader is the account that Istio's charts create for other clusters' control planes. Its role
// (istio-reader-clusterrole) permits reading most kinds that navarchd reads, except ServiceAccounts, Roles and
// bindings.
const reader = `
{apiVersion: v1, kind: Namespace, metadata: {name: istio-system}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: istio-reader-service-account, namespace: istio-system}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: istio-reader}
rules:
  - {apiGroups: [""], resources: [endpoints, pods, services, nodes, replicationcontrollers, namespaces, secrets], verbs: [get, list, watch]}
  - {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [get, list, watch]}
  - {apiGroups: [networking.istio.io], resources: [workloadentries], verbs: [get, list, watch]}
  - {apiGroups: [authorization.k8s.io], resources: [subjectaccessreviews], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: istio-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: istio-reader}
subjects: [{kind: ServiceAccount, name: istio-reader-service-account, namespace: istio-system}]
`

const ratings = "{apiVersion: v1, kind: Service, metadata: {name: ratings, namespace: shop}, spec: {ports: [{name: http, port: 8000}]}}\n"

// ratingsAt returns an EndpointSlice of ratings with these addresses.
func ratingsAt(addresses ...string) string {
	var endpoints []string
	for _, a := range addresses {
		endpoints = append(endpoints, fmt.Sprintf("{addresses: [%s], conditions: {ready: true}}", a))
	}
	return "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: ratings-1, namespace: shop, labels: {kubernetes.io/service-name: ratings}}," +
		" addressType: IPv4, ports: [{name: http, port: 8080}], endpoints: [" + strings.Join(endpoints, ", ") + "]}\n"
}

// legacy is a ServiceEntry that selects WorkloadEntries, and workloadEntry one, at an address.
const legacy = "{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: legacy, namespace: shop}, spec: {hosts: [legacy.internal], location: MESH_INTERNAL," +
	" resolution: STATIC, ports: [{name: http, number: 80, protocol: HTTP}], workloadSelector: {labels: {tier: old}}}}\n"

func workloadEntry(name, address string) string {
	return fmt.Sprintf("{apiVersion: networking.istio.io/v1, kind: WorkloadEntry, metadata: {name: %s, namespace: shop, labels: {tier: old}}, spec: {address: %s, serviceAccount: vm}}\n", name, address)
}

// endpoints follows how many endpoints a cluster of Envoy's has, on one stream, until the test ends.
type endpoints struct {
	mu    sync.Mutex
	all   []int // of each answer
	ended error
}

func followEndpoints(t *testing.T, d *daemon, cluster string) *endpoints {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+d.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var receives sync.WaitGroup
	t.Cleanup(func() { cancel(); receives.Wait(); conn.Close() })
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node("shop", "client", "10.1.9.9"), TypeUrl: xds.Endpoint.URL(),
		ResourceNamesSubscribe: []string{cluster}})
	if err != nil {
		t.Fatal(err)
	}
	e := &endpoints{}
	receives.Go(func() {
		for {
			n, err := e.receive(stream)
			e.mu.Lock()
			e.all, e.ended = append(e.all, n...), err
			e.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	return e
}

// receive acknowledges one response, and returns the number of endpoints by assignment; 0 for a removed one.
func (e *endpoints) receive(stream grpc.BidiStreamingClient[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]) (all []int, err error) {
	res, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	for _, r := range res.Resources {
		var cla endpointv3.ClusterLoadAssignment
		if err := r.Resource.UnmarshalTo(&cla); err != nil {
			return nil, err
		}
		n := 0
		for _, l := range cla.Endpoints {
			n += len(l.LbEndpoints)
		}
		all = append(all, n)
	}
	for range res.RemovedResources {
		all = append(all, 0)
	}
	return all, stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: res.TypeUrl, ResponseNonce: res.Nonce})
}

// are waits until the number of endpoints is `want`.
func (e *endpoints) are(t *testing.T, want int) {
	t.Helper()
	eventually(t, patience, func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		if len(e.all) == 0 || e.all[len(e.all)-1] != want {
			return fmt.Errorf("endpoints %v, want %d at last (%v)", e.all, want, e.ended)
		}
		return nil
	})
}

// neverFewer fails where there have been fewer than want since there were that many, or the stream has ended.
func (e *endpoints) neverFewer(t *testing.T, want int) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, since := 0, false; i < len(e.all); i++ {
		if since = since || e.all[i] >= want; since && e.all[i] < want {
			t.Errorf("there were fewer than %d endpoints: %v", want, e.all)
		}
	}
	if e.ended != nil {
		t.Errorf("the stream has ended: %v", e.ended)
	}
}

// twoClusters starts two control planes at once: the config cluster, and west with the account of Istio's reader.
func twoClusters(t *testing.T) (home, west *controlplane.ControlPlane) {
	t.Helper()
	var starts sync.WaitGroup
	for _, c := range []**controlplane.ControlPlane{&home, &west} {
		dir := t.TempDir()
		starts.Go(func() {
			var err error
			if *c, err = controlplane.Run(controlplane.Options{Istio: true}, dir); err != nil {
				t.Error(err)
			}
		})
	}
	starts.Wait()
	for _, c := range []*controlplane.ControlPlane{home, west} {
		if c != nil {
			t.Cleanup(c.Close)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	west.Kubectl(t, reader, "apply", "-f", "-")
	return home, west
}

// remoteSecretOf returns the output of navarchctl create-remote-secret for a cluster, with a token that ends with the
// Secret `bound` of that cluster.
func remoteSecretOf(t *testing.T, c *controlplane.ControlPlane, bound string) string {
	t.Helper()
	c.Kubectl(t, "", "-n", "istio-system", "create", "secret", "generic", bound)
	token := strings.TrimSpace(c.Kubectl(t, "", "-n", "istio-system", "create", "token", "istio-reader-service-account", "--bound-object-kind=Secret", "--bound-object-name="+bound))
	config := c.Config()
	if err := kuberest.LoadTLSFiles(config); err != nil {
		t.Fatal(err)
	}
	encode := base64.StdEncoding.EncodeToString
	c.Kubectl(t, fmt.Sprintf("apiVersion: v1\nkind: Secret\ntype: kubernetes.io/service-account-token\n"+
		"metadata: {name: istio-reader-service-account-istio-remote-secret-token, namespace: istio-system, annotations: {kubernetes.io/service-account.name: istio-reader-service-account}}\n"+
		"data: {token: %s, ca.crt: %s}\n", encode([]byte(token)), encode(config.CAData)), "apply", "-f", "-")
	out, err := exec.Command(binary(t, "navarchctl"), "create-remote-secret", "--kubeconfig", c.Kubeconfig(), "--name", "west").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// A Secret that navarchctl makes adds a second cluster, with the rights of Istio's reader, to a navarchd with the
// documented rights. Its endpoints reach a stream, and so do its WorkloadEntries that a ServiceEntry of the config
// cluster selects. New credentials replace the first ones without losing an endpoint, and wrong ones do not. While its
// API server is away, its endpoints stay, and a problem names it and its age. After the Secret is deleted, the removal
// is held until an operator accepts it.
func TestKubeSecondCluster(t *testing.T) {
	home, west := twoClusters(t)
	data, kubeconfig := t.TempDir(), rights.Documented(t, home)
	home.Kubectl(t, "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}\n---\n"+ratings, "apply", "-f", "-")
	home.Kubectl(t, legacy+"---\n"+workloadEntry("vm", "10.1.5.1"), "apply", "-f", "-")
	west.Kubectl(t, ratings+"---\n"+ratingsAt("10.244.1.1", "10.244.1.2")+"---\n"+workloadEntry("vm", "10.2.5.1")+"---\n"+workloadEntry("vm-2", "10.2.5.2"), "apply", "-f", "-")
	first := remoteSecretOf(t, west, "first")
	d := start(t, "--kubeconfig", kubeconfig, "--data-dir", data)
	eventually(t, patience, d.ready)
	seen, machines := followEndpoints(t, d, "outbound|8000||ratings.shop.svc.cluster.local"), followEndpoints(t, d, "outbound|80||legacy.internal")
	seen.are(t, 0)
	machines.are(t, 1)
	home.Kubectl(t, first, "apply", "-f", "-")
	seen.are(t, 2)
	machines.are(t, 3)
	d.hasProblem(t, "Object:in cluster west", "Severity:warning", "may not be listed and watched", "ClusterRole, ClusterRoleBinding, Role, RoleBinding, ServiceAccount")

	home.Kubectl(t, remoteSecretOf(t, west, "second"), "apply", "-f", "-")
	d.said(t, 2, "everything was read from Kubernetes", "cluster=west")
	west.Kubectl(t, "", "-n", "istio-system", "delete", "secret", "first") // with it the first token
	home.Kubectl(t, regexp.MustCompile(`token: \S+`).ReplaceAllString(first, "token: wrong"), "apply", "-f", "-")
	d.hasProblem(t, "the new credentials of cluster west are not used yet", "istio-remote-secret-west")
	west.Kubectl(t, ratingsAt("10.244.1.1", "10.244.1.2", "10.244.1.3"), "apply", "-f", "-")
	seen.are(t, 3)
	if n := len(d.lines("reading of a cluster started", "cluster=west")); n != 2 {
		t.Errorf("the cluster was begun %d times, want 2: %s", n, d.log)
	}
	seen.neverFewer(t, 2)

	west.KillAPIServer()
	d.hasProblem(t, "cluster west is unreachable, or cannot be read in full, since ")
	seen.neverFewer(t, 2)
	home.Kubectl(t, "", "-n", "istio-system", "delete", "secret", "istio-remote-secret-west")
	ctl := removalsOf(t, d)
	id := heldID(t, ctl, "Service shop/ratings in cluster west", "no Secret names")
	d.hasProblem(t, "in cluster west", "navarchctl removals accept "+id)
	seen.neverFewer(t, 2)
	machines.neverFewer(t, 3)
	if out, err := ctl("accept", id, "--kubeconfig", accepts(t, home, "may", true)); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	seen.are(t, 0)
	machines.are(t, 1)
}
