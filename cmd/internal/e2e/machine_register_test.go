package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
)

// workloads returns a check that the configuration of a replica contains `want` Workloads.
func workloads(d *daemon, want int) func() error {
	return func() error {
		text, err := get(d.http, "/debug/snapshot")
		if err != nil {
			return err
		}
		var page struct{ Records map[string]int }
		if err := json.Unmarshal([]byte(text), &page); err != nil || page.Records["Workload"] != want {
			return fmt.Errorf("%d Workloads, want %d: %v", page.Records["Workload"], want, err)
		}
		return nil
	}
}

// An agent with only the files of `navarchctl vm configure` becomes ready, and its machine is registered. When the
// agent is killed, the machine's entry is deleted.
func TestMachineRegistersItself(t *testing.T) {
	parallel(t)
	data, config, dir := t.TempDir(), folder(t), filepath.Join(t.TempDir(), "vm")
	const group = "apiVersion: networking.istio.io/v1\nkind: WorkloadGroup\nmetadata: {name: vms, namespace: shop}\nspec: {metadata: {labels: {app: vms}}, template: {serviceAccount: vm}}\n"
	write(t, config, "group.yaml", group)
	d := startProgram(t, navarchd(t), []string{"PILOT_WORKLOAD_ENTRY_GRACE_PERIOD=1s"}, "--config-dir", config, "--data-dir", data)
	eventually(t, patience, serves(t, d, 1))
	eventually(t, patience, workloads(d, 0))
	mesh := t.TempDir()
	write(t, mesh, "mesh.yaml", "defaultConfig: {discoveryAddress: '"+d.secure+"', terminationDrainDuration: 1s, proxyMetadata: {ISTIOD_SAN: istiod.istio-system.svc, ISTIO_META_INTERCEPTION_MODE: NONE}}\n")
	out, err := exec.Command(binary(t, "navarchctl"), "vm", "configure", "--file", filepath.Join(config, "group.yaml"), "--data-dir", data, "--mesh-config", filepath.Join(mesh, "mesh.yaml"),
		"--autoregister", "--internalIP", "10.99.0.7", "--output", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m := runMachine(t, dir, "mesh.yaml", "istio-token", filepath.Join(dir, "root-cert.pem"))
	eventually(t, patience, m.ready)
	eventually(t, patience, workloads(d, 1))
	if err := m.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, workloads(d, 0))
}
