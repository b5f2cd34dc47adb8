//go:build kube

package kube

import (
	"net/http"
	"os"
	"testing"
	"time"

	"navarch.io/navarch/deploy/testcluster/controlplane"
	"navarch.io/navarch/deploy/testcluster/rights"
	"navarch.io/navarch/store/apiserver"
)

func TestMain(m *testing.M) { os.Exit(controlplane.Main(m)) }

// patience is the time limit for any answer of a real control plane.
const patience = time.Minute

// connect is a client with the documented rights and no more.
func connect(t *testing.T, c *controlplane.ControlPlane) *apiserver.Client {
	t.Helper()
	api, err := apiserver.New(rights.Documented(t, c))
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// until repeats check until it succeeds.
func until(t *testing.T, what string, check func() bool) {
	t.Helper()
	limit := time.Now().Add(patience)
	for !check() {
		if time.Now().After(limit) {
			t.Fatalf("not after %v: %s", patience, what)
		}
		time.Sleep(20 * time.Millisecond) // the API server does not report when a binding takes effect
	}
}

// The API server decides who may list Secrets, by all its rules: by name, by group, in one namespace and not in
// another. Without the right to request that, and while it is away, the result is an error, never a refusal.
// Promise: security-workloads.md#identity-and-private-keys
func TestKubeMayListSecrets(t *testing.T) {
	c := controlplane.Start(t, controlplane.Options{})
	access := NewAccess(connect(t, c))
	may := func(namespace, account string) bool {
		t.Helper()
		allowed, why, err := access.MayListSecrets(t.Context(), namespace, account)
		if err != nil || allowed == (why != "") {
			t.Fatalf("allowed %v, why %q, %v", allowed, why, err)
		}
		return allowed
	}
	if may("one", "gateway") {
		t.Error("allowed without a binding")
	}
	c.Kubectl(t, "", "create", "role", "secrets", "-n", "one", "--verb=list", "--resource=secrets")
	c.Kubectl(t, "", "create", "rolebinding", "secrets", "-n", "one", "--role=secrets", "--serviceaccount=one:gateway")
	until(t, "one/gateway may", func() bool { return may("one", "gateway") })
	for _, other := range [][2]string{{"one", "other"}, {"two", "gateway"}} {
		if may(other[0], other[1]) {
			t.Errorf("%v may", other)
		}
	}
	c.Kubectl(t, "", "create", "clusterrole", "secrets", "--verb=list", "--resource=secrets")
	c.Kubectl(t, "", "create", "clusterrolebinding", "all", "--clusterrole=secrets", "--group=system:serviceaccounts:two")
	until(t, "all of two may", func() bool { return may("two", "gateway") })
	c.Kubectl(t, "", "delete", "rolebinding", "secrets", "-n", "one")
	until(t, "one/gateway may no more", func() bool { return !may("one", "gateway") })
	c.Kubectl(t, "", "delete", "clusterrolebinding", "navarchd")
	until(t, "the right to ask is gone", func() bool {
		_, _, err := access.MayListSecrets(t.Context(), "one", "gateway")
		return apiserver.IsStatus(err, http.StatusForbidden)
	})
	c.KillAPIServer()
	if allowed, _, err := access.MayListSecrets(t.Context(), "two", "gateway"); err == nil || allowed || apiserver.IsStatus(err, http.StatusForbidden) {
		t.Errorf("without an API server: %v, %v", allowed, err)
	}
}
