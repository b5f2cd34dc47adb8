package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// values is the values file of the installation.
const values = "deploy/demo/kube/values.yaml"

// first is the tag and version of the installed build, next that of the build of the upgrade.
const first, next = "dev", "next"

// run runs a Helm command for the one release.
func (d *demo) run(ctx context.Context, args ...string) (string, error) {
	return d.helm.Run(ctx, append(args, "-n", "istio-system", "--wait", "--timeout=180s")...)
}

// install installs the packaged chart with Istio's definitions, and an etcd of three members. The namespace of gateways
// is made before, because the chart has rights for its Secrets.
func (d *demo) install(ctx context.Context) (string, error) {
	began := time.Now()
	if _, err := d.kubectl(ctx, "create", "namespace", "edge"); err != nil {
		return "", err
	}
	if _, err := d.run(ctx, "install", "navarch", d.chart, "--create-namespace", "-f", values); err != nil {
		return "", err
	}
	err := d.await(ctx, minute, func(ctx context.Context) error { return d.replicas(ctx, 3) })
	if err != nil {
		return "", err
	}
	took := since(began)
	var leader string
	err = d.await(ctx, minute, func(ctx context.Context) (err error) {
		leader, err = d.leader(ctx)
		return err
	})
	return fmt.Sprintf("3 members of etcd, 2 ingesters and 3 replicas are ready after %s; %s leads",
		took, leader), errors.Join(err, d.runs(ctx, first))
}

// runs returns an error unless all processes of the control plane are of one build.
func (d *demo) runs(ctx context.Context, version string) error {
	for app, want := range map[string]int{"istiod": 3, "istiod-ingest": 2} {
		names, err := d.pods(ctx, app)
		if err != nil {
			return err
		}
		if len(names) != want {
			return fmt.Errorf("%s has %d Pods, want %d", app, len(names), want)
		}
		for _, pod := range names {
			page, err := d.metrics(ctx, pod)
			if err != nil {
				return err
			}
			if !strings.Contains(page, fmt.Sprintf("pilot_info{version=%q} 1", version)) {
				return fmt.Errorf("%s is not of the build %s", pod, version)
			}
		}
	}
	return nil
}

// root returns the root certificate that the shop trusts.
func (d *demo) root(ctx context.Context) (string, error) {
	return d.kubectl(ctx, "get", "configmap", "-n", "shop", "istio-ca-root-cert", "-o", `jsonpath={.data.root-cert\.pem}`)
}

// replaced runs a Helm command that replaces all processes by those of another build. Then it checks that a wrong
// object is refused, the root is unchanged, and all traffic follows an edit.
func (d *demo) replaced(ctx context.Context, version, from, to string, command ...string) (string, error) {
	was, err := d.root(ctx)
	if err != nil {
		return "", err
	}
	began := time.Now()
	if _, err := d.run(ctx, command...); err != nil {
		return "", err
	}
	if err := d.await(ctx, minute, func(ctx context.Context) error { return d.runs(ctx, version) }); err != nil {
		return "", err
	}
	took := since(began)
	if _, err := d.refused(ctx); err != nil {
		return "", err
	}
	is, err := d.root(ctx)
	if err == nil && (is != was || is == "") {
		err = fmt.Errorf("the root is another one:\n%s\nwas\n%s", is, was)
	}
	if err != nil {
		return "", err
	}
	edited, err := d.edit(ctx, from, to)
	return fmt.Sprintf("2 ingesters and 3 replicas run the build %s after %s, with the same root; %s", version, took, edited), err
}

func (d *demo) upgrade(ctx context.Context) (string, error) {
	return d.replaced(ctx, next, "v1", "v2", "upgrade", "navarch", d.chart, "-f", values, "--set", "tag="+next)
}

// rollBack returns to the first version of the release, which had the failure policy Ignore; navarchd sets Fail again
// (deploy/docs/installation.md, Upgrades).
func (d *demo) rollBack(ctx context.Context) (string, error) {
	return d.replaced(ctx, first, "v2", "v1", "rollback", "navarch", "1")
}

// uninstall removes the release and checks that keys, definitions and the mesh's traffic stay.
func (d *demo) uninstall(ctx context.Context) (string, error) {
	if _, err := d.run(ctx, "uninstall", "navarch"); err != nil {
		return "", err
	}
	// Pods are deleted a moment after their Deployments.
	const kinds = "all,secrets,configmaps,serviceaccounts,roles,rolebindings,poddisruptionbudgets,networkpolicies," +
		"mutatingwebhookconfigurations,validatingwebhookconfigurations,validatingadmissionpolicies," +
		"validatingadmissionpolicybindings,clusterroles,clusterrolebindings"
	var left []string
	err := d.await(ctx, minute, func(ctx context.Context) error {
		text, err := d.kubectl(ctx, "get", kinds, "-A", "-l", "app.kubernetes.io/instance=navarch",
			"-o", `jsonpath={range .items[*]}{.kind} {.metadata.name};{end}`)
		if err != nil {
			return err
		}
		left = strings.Split(strings.TrimSuffix(text, ";"), ";")
		if other := slices.DeleteFunc(slices.Clone(left),
			func(of string) bool { return strings.HasPrefix(of, "Secret navarch-") }); len(other) > 0 {
			return fmt.Errorf("left are %q", other)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	kept, err := d.kubectl(ctx, "get", "virtualservices", "-n", "shop", "-o", "name")
	if err == nil && !strings.Contains(kept, "/reviews") {
		err = fmt.Errorf("the VirtualServices are %q", kept)
	}
	return "what is left: " + strings.Join(left, ", ") + ", and Istio's definitions with all objects", err
}
