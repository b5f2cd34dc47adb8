package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// pushList revokes an unused certificate: the new list reaches both Envoys.
func (r *turning) pushList() {
	r.t.Helper()
	r.operate("revoke", "--serial", "c0ffee")
	r.await("the revocation list at both Envoys", startLimit, func(ctx context.Context) error {
		_, _, revoked, err := r.seen(ctx)
		for _, w := range r.services.workloads {
			if err == nil && !slices.Contains(revoked[w.pod], "1 revoked") {
				err = fmt.Errorf("%s has %v", w.pod, revoked[w.pod])
			}
		}
		return err
	})
	r.step("both Envoys have a new revocation list")
}

// withoutKMS stops the provider. An unsealed replica continues to sign. A replica that starts meanwhile serves xDS, and
// answers requests for certificates with the reason of the refusal.
func (r *turning) withoutKMS(restarted *replica) {
	r.t.Helper()
	r.kms.Stop()
	r.kill(restarted)
	r.launch(restarted) // its CA makes no certificate for itself either: it is not ready; the address of all leads to it still
	r.await("its reason for not being ready", startLimit, func(ctx context.Context) error {
		if err := r.ready(ctx, restarted); err == nil || !strings.Contains(err.Error(), "no serving certificate") || !strings.Contains(err.Error(), "KMS plugin") {
			return fmt.Errorf("it says %w", errors.Join(err))
		}
		return nil
	})
	sealed, own := r.newReplica("navarchd-c"), newOperator(r.t, r.dir)
	r.start(sealed, "--tls-cert", own.cert, "--tls-key", own.key)
	r.await("xDS from a sealed replica", startLimit, func(ctx context.Context) error { return r.serves(ctx, sealed, own.tls) })
	err := r.certificate(r.ctx, sealed.secure, own.tls)
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "KMS plugin") {
		r.t.Errorf("a sealed replica answers %v", err)
	}
	r.step("a sealed replica says: %v", err)
	r.kill(sealed)
	r.renewals(1)
	r.kms.Resume()
	r.step("the KMS plugin is back")
}

// laggard begins a rotation while the server's agent hangs, so that its Envoy trusts the old root only. No leaf of the
// new root is issued before it has caught up, and an operator can see the holder that the rotation waits for.
func (r *turning) laggard() {
	r.t.Helper()
	client, server := r.services.workloads[0], r.services.workloads[1]
	next := func(w workload) string { // the serial number of the next leaf
		r.t.Helper()
		was, err := r.leaf(r.ctx, w)
		r.must(err)
		now := was
		r.await("the next leaf of "+w.pod, startLimit, func(ctx context.Context) (err error) {
			if now, err = r.leaf(ctx, w); err == nil && now.serial == was.serial {
				err = errors.New("it has the old one")
			}
			return err
		})
		return now.epoch
	}
	next(server) // it has most of its life before it: time to hang for a while
	pid := r.children.named("agent-" + server.pod).cmd.Process.Pid
	r.must(syscall.Kill(pid, syscall.SIGSTOP))
	r.operate("rotate")
	epoch := next(client)
	var report struct {
		Rotating int
		Waiting  []struct{ Identity string }
	}
	r.must(json.Unmarshal([]byte(r.operate("status", "-o", "json")), &report))
	r.must(syscall.Kill(pid, syscall.SIGCONT))
	waits := slices.ContainsFunc(report.Waiting, func(h struct{ Identity string }) bool { return strings.HasSuffix(h.Identity, "/sa/"+server.account) })
	if epoch != "1" || report.Rotating != 2 || !waits {
		r.t.Errorf("while an agent hangs, the other's leaf is of epoch %s, and the rotation is %+v", epoch, report)
	}
	r.step("a new root does not sign while the server's agent hangs")
}

// rotation goes from one root to the next: both in use in between, then leaves of the new one alone.
func (r *turning) rotation() {
	r.t.Helper()
	both := false
	r.await("leaves of the new root at both Envoys", startLimit, func(ctx context.Context) error {
		leaves, roots, _, err := r.seen(ctx)
		if err != nil {
			return err
		}
		trusted, switched := 0, 0
		for _, w := range r.services.workloads {
			if slices.Contains(roots[w.pod], "1") && slices.Contains(roots[w.pod], "2") {
				trusted++
			}
			if leaves[w.pod].epoch == "2" {
				switched++
			}
		}
		if trusted == 2 && switched == 0 && !both {
			both = true
			r.step("both Envoys trust two roots")
		}
		if switched > 0 && trusted < 2 {
			return fmt.Errorf("%d use a leaf of the new root, and %d trust it", switched, trusted)
		}
		if switched < 2 {
			return fmt.Errorf("%d of 2", switched)
		}
		return nil
	})
	if !both {
		r.t.Error("there was no time at which both Envoys trusted both roots and used leaves of the old one")
	}
	var report struct {
		Epochs []struct {
			Number int
			Status string
		}
	}
	r.must(json.Unmarshal([]byte(r.operate("status", "-o", "json")), &report))
	if len(report.Epochs) != 2 || report.Epochs[0].Status != "retiring" || report.Epochs[1].Status != "active" {
		r.t.Errorf("epochs %v", report.Epochs)
	}
	r.step("both Envoys use leaves of the new root, the old one is retiring")
}

// treasurer shows that the refused TCP connections were refused for the principal alone: named in the policy, it
// passes.
func (r *turning) treasurer() {
	r.t.Helper()
	vault := r.flows[len(r.flows)-1]
	denied, err := r.stat(r.ctx, r.services.workloads[1], `rbac\.denied$`)
	if err != nil || denied < vault.sent {
		r.t.Errorf("the server's Envoy counts %d connections that its policies denied, %d were tried: %v", denied, vault.sent, err)
	}
	passes := &flow{url: vault.url, client: vault.client}
	r.must(editObject(r.config, "AuthorizationPolicy", "vault", func(o map[string]any) error {
		rule := "cluster.local/ns/redirect/sa/client"
		o["spec"].(map[string]any)["rules"] = []any{map[string]any{
			"from": []any{map[string]any{"source": map[string]any{"principals": []any{rule}}}},
			"to":   []any{map[string]any{"operation": map[string]any{"ports": []any{"9091"}}}},
		}}
		return nil
	}))
	r.await("TCP for the principal that the policy names", startLimit, passes.ask)
	r.step("the policy names the client: it passes")
}
