package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// storeOf runs navarchctl store on a data directory.
func storeOf(t *testing.T, data string) func(args ...string) (string, error) {
	return func(args ...string) (string, error) {
		out, err := exec.Command(binary(t, "navarchctl"), append(append([]string{"store"}, args...), "--data-dir", data)...).CombinedOutput()
		return string(out), err
	}
}

// heldDigest waits until everything of the folder is held.
func heldDigest(t *testing.T, store func(args ...string) (string, error)) (digest string) {
	t.Helper()
	eventually(t, patience, func() error {
		out, err := store("held")
		m := regexp.MustCompile(`(?m)^digest ([0-9a-f]{64})$`).FindStringSubmatch(out)
		if err != nil || m == nil || !strings.Contains(out, "Service shop/web") || !strings.Contains(out, "VirtualService shop/web") {
			return fmt.Errorf("%v: %s", err, out)
		}
		digest = m[1]
		return nil
	})
	return digest
}

// vanish removes all of the folder.
func vanish(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"services.yaml", "routes.yaml"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// withoutWeb says whether a client is given no cluster of the service.
func withoutWeb(t *testing.T, d *daemon) func() error {
	return func() error {
		if err := has(t, d, webCluster)(); err == nil || !strings.Contains(err.Error(), "is not there") {
			return fmt.Errorf("the service is still there: %w", err)
		}
		return nil
	}
}

// A mass removal that is held is accepted with navarchctl, without a restart: by the digest of exactly these objects, once. After a
// restart the next leader holds what the store has, and that is accepted alike.
func TestHeldRemovalIsAccepted(t *testing.T) {
	parallel(t)
	dir, data := folder(t), t.TempDir()
	d, store := start(t, "--config-dir", dir, "--data-dir", data), storeOf(t, data)
	eventually(t, patience, has(t, d, webCluster, dbCluster))
	refused := func(digest, why string) {
		t.Helper()
		if out, err := store("accept-removal", digest); err == nil || !strings.Contains(out, why) {
			t.Errorf("%s: %v %s", why, err, out)
		}
	}
	refused(strings.Repeat("0", 64), "nothing is held")
	vanish(t, dir)
	first := heldDigest(t, store)
	d.hasProblem(t, "navarchctl store accept-removal "+first)
	refused(strings.Repeat("0", 64), "another set")
	if err := has(t, d, webCluster, dbCluster)(); err != nil {
		t.Errorf("what is held: %v", err)
	}
	out, err := store("accept-removal", first, "--reason", "the shop closes")
	if err != nil || !strings.Contains(out, "4 objects go (EndpointSlice 1, Service 2, VirtualService 1)") {
		t.Errorf("%v: %s", err, out)
	}
	eventually(t, patience, withoutWeb(t, d))
	refused(first, "nothing is held")
	d.said(t, 1, "level=WARN", "a held removal was accepted", "digest="+first, `reason="the shop closes"`, "claimed_os_user=", "objects=4")

	write(t, dir, "services.yaml", services)
	write(t, dir, "routes.yaml", routes(1))
	eventually(t, patience, has(t, d, webCluster, dbCluster))
	d.stop(t)
	vanish(t, dir)
	d = start(t, "--config-dir", dir, "--data-dir", data)
	eventually(t, patience, has(t, d, webCluster, dbCluster))
	if out, err := store("accept-removal", heldDigest(t, store)); err != nil {
		t.Errorf("of the next leader: %v %s", err, out)
	}
	eventually(t, patience, withoutWeb(t, d))
	out, err = store("held", "--audit")
	if err != nil || !strings.Contains(out, "nothing is held") {
		t.Errorf("%v: %s", err, out)
	}
	says(t, out, first+" 4 applied the shop closes", "refused: another set", "refused: nothing is held")
}
