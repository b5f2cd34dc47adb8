package controlplane

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
)

// shared is the one control plane of a test binary.
var shared struct {
	once sync.Once
	c    *ControlPlane
	dir  string
	err  error
}

// Shared returns a control plane that all tests of a binary share: with the kinds of Istio and of the Gateway API,
// without admission and controllers. The first call starts it, Main ends it. Tests use separate namespaces (Namespace),
// and restore the cluster-scoped objects that they change.
func Shared(t testing.TB) *ControlPlane {
	t.Helper()
	shared.once.Do(func() {
		if shared.dir, shared.err = os.MkdirTemp("", "controlplane"); shared.err == nil {
			shared.c, shared.err = Run(Options{Istio: true, GatewayAPI: true}, shared.dir)
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.c
}

// Main runs the tests of a binary that uses Shared, from its TestMain, and returns the exit code.
func Main(m *testing.M) int {
	code := m.Run()
	if shared.c != nil {
		shared.c.Close()
	}
	if shared.dir != "" {
		_ = os.RemoveAll(shared.dir) // a temporary folder
	}
	return code
}

var namespaces atomic.Int64

// Namespace creates a namespace for one test, and deletes it at the end of the test. Without the namespace-controller
// it stays, in phase Terminating.
func (c *ControlPlane) Namespace(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("test-%d", namespaces.Add(1))
	c.Kubectl(t, "", "create", "namespace", name)
	t.Cleanup(func() {
		if !c.api.ended() {
			c.Kubectl(t, "", "delete", "namespace", name, "--wait=false")
		}
	})
	return name
}
