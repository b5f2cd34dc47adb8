package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"navarch.io/navarch/deploy/demo/traffic/count"
)

// asked returns nil once the API server calls the webhook for Pods of the shop, and trusts it: applied configurations
// take effect with a delay.
func (d *demo) asked(ctx context.Context) error {
	text, err := d.kubectl(ctx, "run", "probe", "-n", "shop",
		"--image=traffic", "--dry-run=server", "-o", "jsonpath={.spec.initContainers[*].name}")
	if err == nil && !strings.Contains(text, "istio-proxy") {
		err = errors.New("Pods of the shop get no proxy yet")
	}
	return err
}

// injected returns the number of the shop's Pods. The error names a Pod without the proxy that the webhook adds.
func (d *demo) injected(ctx context.Context) (int, error) {
	text, err := d.kubectl(ctx, "get", "pods", "-n", "shop", "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.spec.initContainers[*].name}{"\n"}{end}`)
	if err != nil {
		return 0, err
	}
	pods := strings.Split(strings.TrimSpace(text), "\n")
	for _, pod := range pods {
		if !strings.HasSuffix(pod, " istio-init istio-proxy") {
			return 0, fmt.Errorf("a Pod was not injected: %s", pod)
		}
	}
	return len(pods), nil
}

// stockPod runs a Pod whose proxy has the layout of Istio's own injection, and has it call the shop under its identity.
func (d *demo) stockPod(ctx context.Context) (string, error) {
	documents := strings.Split(manifest("stock"), "\n---\n")
	last := len(documents) - 1
	var err error
	if documents[last], err = stock(documents[last]); err != nil {
		return "", err
	}
	if err := d.apply(ctx, documents...); err != nil {
		return "", err
	}
	if _, err := d.kubectl(ctx, "wait", "-n", "stock", "--for=condition=Ready", "pod/caller", "--timeout=90s"); err != nil {
		return "", err
	}
	const caller = "URI=spiffe://cluster.local/ns/stock/sa/caller"
	err = d.await(ctx, minute, func(ctx context.Context) error {
		text, err := d.kubectl(ctx, "exec", "-n", "stock", "caller", "-c", "traffic", "--", "traffic", "report")
		if err != nil {
			return err
		}
		var r count.Report
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			return err
		}
		if web := r.Workloads["web"]; web == nil || !strings.Contains(web.Caller, caller) {
			return fmt.Errorf("web was not called by %s yet", caller)
		}
		return nil
	})
	return "docker.io/istio/proxyv2 with `proxy sidecar` and `istio-iptables`: web is called by " + caller, err
}

// refused returns the output of kubectl for an object that the webhook refuses.
func (d *demo) refused(ctx context.Context) (string, error) {
	for _, name := range []string{"istio-validator-istio-system", "istiod-default-validator"} {
		err := d.await(ctx, minute, func(ctx context.Context) error {
			policy, err := d.kubectl(ctx, "get", "validatingwebhookconfiguration", name, "-o", "jsonpath={.webhooks[0].failurePolicy}")
			if err == nil && policy != "Fail" {
				err = fmt.Errorf("%s has the failure policy %s", name, policy)
			}
			return err
		})
		if err != nil {
			return "", err
		}
	}
	cmd := d.cluster.KubectlCommand(ctx, "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(manifest("wrong"))
	said, err := cmd.CombinedOutput()
	said = bytes.TrimSpace(said)
	var no *exec.ExitError
	switch {
	case err == nil:
		return "", fmt.Errorf("it was taken: %s", said)
	case !errors.As(err, &no):
		return "", err
	case !bytes.Contains(said, []byte(`spec.gateways[0]: "a/b/c" is no gateway`)):
		return "", fmt.Errorf("refused for another reason: %s", said)
	}
	return string(said), nil
}
