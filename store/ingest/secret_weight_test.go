package ingest

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"testing"

	"navarch.io/navarch/store/object"
)

// authorities is a Secret of certificates of authorities.
func authorities(t *testing.T, name string, kib int) object.Event {
	cert, _ := pair(t)
	return put(t, fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: %s, namespace: shop}, data: {ca.crt: %s}}",
		name, base64.StdEncoding.EncodeToString(bytes.Repeat(cert, (kib<<10)/len(cert)))))
}

// ofSecrets has room for two Secrets of 700 KiB, and not for three.
var ofSecrets = Budget{Objects: 1, Bytes: 1, Own: 6}

// Large Secrets weigh four times their bytes. One without room is named, is kept as its object alone, and is admitted
// when there is room. A new leader decides the same. Secrets count neither as objects nor as bytes.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestBudgetOfSecrets(t *testing.T) {
	d := budgetDesk(t, ofSecrets)
	a, b, c := authorities(t, "a", 700), authorities(t, "b", 700), authorities(t, "c", 700)
	d.want(Objects{a, b, c, synced}, "load", "write +Secret a +Secret b")
	d.refused("c")
	const why = "would have 8 MiB of each replica for objects that only its own proxies get, and 6 are allowed (--tenant-max-own)"
	if got := d.problems(why); len(got) != 1 {
		t.Errorf("problems %v", d.s.Problems())
	}
	if few := d.s.inventory.objects.Get(c.ID).Entry.few(); len(few.offered) > 0 {
		t.Error("the records of a refused Secret are kept")
	}
	stored, bytes, secrets := d.stored, d.bytes, d.keep
	d = budgetDesk(t, ofSecrets)
	d.stored, d.bytes, d.keep = stored, bytes, secrets
	d.want(Objects{c, b, a, synced}, "load")
	d.refused("c")
	d.want(Objects{gone(a)}, "write +Secret c -Secret a")
	d.refused()
}

// A certificate with its key is renewed also over the limit.
func TestBudgetOfCertificates(t *testing.T) {
	d := budgetDesk(t, Budget{Own: 1})
	d.step(Objects{synced})
	for range 2 {
		cert, key := pair(t)
		e := put(t, secretOf("web", cert, key))
		d.step(Objects{authorities(t, "large", 700), e})
		d.refused("large")
		n := d.s.inventory.objects.Get(e.ID)
		if _, private := d.s.inventory.newest(n); n.Entry.waiting || !bytes.Equal(private, key) {
			t.Errorf("the certificate is not in effect: %d bytes of key", len(private))
		}
	}
}

// A Secret with a key is weighed with its key, and a new leader takes the stored version as admitted.
func TestBudgetOfSecretsWithKeys(t *testing.T) {
	cert, key := pair(t)
	large, _ := pair(t)
	text := base64.StdEncoding.EncodeToString
	e := put(t, fmt.Sprintf("{apiVersion: v1, kind: Secret, type: kubernetes.io/tls, metadata: {name: web, namespace: shop}, "+
		"data: {tls.crt: %s, tls.key: %s, ca.crt: %s}}", text(cert), text(key), text(bytes.Repeat(large, 1000))))
	d := budgetDesk(t, Budget{Own: 1})
	d.step(Objects{e, synced})
	d.refused("web")
	d.s.inventory.budgets.ledger.budget.Own = 9
	d.step(Objects{authorities(t, "other", 20)})
	d.refused()
	if got := d.s.inventory.objects.Get(e.ID).Entry.few(); len(got.private) == 0 || len(got.sealing) > 0 {
		t.Error("the admitted Secret has no key")
	}
}
