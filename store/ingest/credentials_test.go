package ingest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/store/credential"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// epochOfTest is the time at which these tests begin.
var epochOfTest = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// certificate returns a Secret edge/web whose certificate is valid until hours after epochOfTest; broken: its key
// belongs to another certificate.
func certificate(t *testing.T, hours int, broken bool) object.Event {
	t.Helper()
	encode := func(kind string, b []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	pair := func() (*ecdsa.PrivateKey, string) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return key, encode("PRIVATE KEY", raw)
	}
	key, private := pair()
	if broken {
		_, private = pair()
	}
	until := epochOfTest.Add(time.Duration(hours) * time.Hour)
	template := &x509.Certificate{SerialNumber: big.NewInt(int64(hours + 1000)),
		NotBefore: epochOfTest.Add(-9 * time.Hour), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return put(t, fmt.Sprintf("{apiVersion: v1, kind: Secret, type: kubernetes.io/tls, metadata: {name: web, namespace: edge}, data: {tls.crt: %s, tls.key: %s}}",
		encode("CERTIFICATE", der), private))
}

// until returns the end of validity of the wanted certificate, in hours after epochOfTest; -1: there is
// no certificate.
func until(s *State) int {
	n := s.inventory.objects.Get(object.ID{Kind: "Secret", Namespace: "edge", Name: "web"})
	if len(n.Entry.records) == 0 {
		return -1
	}
	return int(credential.Until(n.Entry.records[0].(*model.Secret).Spec.GetChain()).Sub(epochOfTest).Hours())
}

func at(hours int, events ...object.Event) Emits {
	return Emits{{Objects: events, At: epochOfTest.Add(time.Duration(hours) * time.Hour)}}
}

// problemOf returns the problem of the Secret.
func problemOf(s *State) string {
	for _, p := range s.Problems() {
		if p.ID.Kind == "Secret" {
			return fmt.Sprintf("%s %s: %s", p.Severity, p.Field, p.Message)
		}
	}
	return ""
}

// An expired certificate does not replace a valid one. Without a valid one it is used, since clients may not verify it.
// The passing of time makes a certificate a problem, and lets the newest one be used once the older has expired too.
func TestExpiredCertificates(t *testing.T) {
	s := NewState(Options{})
	check := func(what string, want int, problem string) {
		t.Helper()
		if got, said := until(s), problemOf(s); got != want || (said == "") != (problem == "") || !strings.Contains(said, problem) {
			t.Errorf("%s: the certificate until %d is used, want %d; %q, want %q", what, got, want, said, problem)
		}
	}
	s.Step(at(0, certificate(t, -2, false)))
	check("the first one is expired", -2, "warning data.tls.crt: the certificate has expired at 2025-12-31T22:00:00Z; it is used all the same")
	s.Step(at(0, certificate(t, 5, false)))
	check("a valid one", 5, "")
	s.Step(at(1, certificate(t, -1, false)))
	check("an expired one after it", 5, "error data.tls.crt: the certificate has expired at 2025-12-31T23:00:00Z; the certificate before it is valid")
	s.Step(Passed{epochOfTest.Add(4 * time.Hour)})
	check("time passes", 5, "the certificate before it is valid")
	s.Step(Passed{epochOfTest.Add(5 * time.Hour)})
	check("the older has expired too", -1, "it is used all the same")
	s.Step(at(6, certificate(t, 8, false)))
	check("a renewed one", 8, "")
	s.Step(Passed{epochOfTest.Add(8 * time.Hour)})
	check("it expires in use", 8, "warning data.tls.crt: the certificate has expired at 2026-01-01T08:00:00Z; it is used")
	s.Step(at(9, certificate(t, 20, true)))
	check("the key of another", 8, "does not belong")
	s.Step(at(9, gone(certificate(t, 1, false))))
	if n := len(s.inventory.credentials.expire) + len(s.inventory.credentials.faulty); n > 0 {
		t.Errorf("%d entries of a removed Secret", n)
	}
}

// A new leader finds an expired certificate at the source and a valid one in the store: the stored one stays.
func TestStoredCertificateIsValid(t *testing.T) {
	term := kv.Epoch{Key: "leader", Revision: 3}
	for name, c := range map[string]struct {
		stored, source int
		stays          bool
	}{"valid": {5, -1, true}, "both expired": {-3, -1, false}, "renewed": {5, 9, false}} {
		old := NewState(Options{})
		old.Step(at(-9, certificate(t, c.stored, false)))
		stored := old.inventory.objects.Get(object.ID{Kind: "Secret", Namespace: "edge", Name: "web"}).Entry.records[0].(*model.Secret)
		s := NewState(Options{})
		s.Step(at(0, certificate(t, c.source, false), object.Event{Op: object.Synced, ID: object.ID{Origin: origin.Origin{}}}))
		s.Step(Gained{Epoch: term})
		s.Step(Loaded{Epoch: term, Now: epochOfTest, After: 1, Complete: true,
			Have: map[model.Key]model.Hash{stored.Key: stored.Hash}, Secrets: map[model.Key]*model.Secret{stored.Key: stored}})
		adopted := s.inventory.objects.Get(object.ID{Kind: "Secret", Namespace: "edge", Name: "web"}).Entry.few().adopted
		if stays := len(adopted) == 1 && until(s) == -1; stays != c.stays {
			t.Errorf("%s: the stored certificate stays: %v", name, stays)
		}
		if said := strings.Contains(problemOf(s), "the certificate before it is valid"); said != c.stays {
			t.Errorf("%s: %s", name, problemOf(s))
		}
		s.Step(Passed{epochOfTest.Add(5 * time.Hour)})
		if c.stays && (len(s.inventory.objects.Get(object.ID{Kind: "Secret", Namespace: "edge", Name: "web"}).Entry.records) != 1 ||
			!strings.Contains(problemOf(s), "it is used all the same")) {
			t.Errorf("%s, until the stored one expires: %s", name, problemOf(s))
		}
	}
}

// A problem of a Secret is one of each object that makes workloads use it. An object of another namespace is not told
// the cause.
// Promise: security-gateways.md#keys-secrets-and-configmaps
func TestMisusedSecrets(t *testing.T) {
	s := NewState(Options{SecretUses: gatewayUses})
	own := gateway(t, "own", "edge", "web")
	own.ID.Namespace = "edge"
	own.Object.ID = own.ID
	s.Step(at(0, own, gateway(t, "far", "edge", "web"), gateway(t, "other", "other", "web"),
		podOf(t, "edge", "p", "edge", "True"), certificate(t, 5, false)))
	if all := s.inventory.misused(); len(all) > 0 {
		t.Errorf("of a good one: %v", all)
	}
	s.Step(at(0, certificate(t, 5, true)))
	if !s.inventory.unchecked() {
		t.Error("the users are not looked at")
	}
	got := map[string]string{}
	for _, p := range s.inventory.misused() {
		got[p.ID.Namespace+"/"+p.ID.Name] = p.Message
	}
	if len(got) != 2 || !strings.HasPrefix(got["edge/own"], "Secret edge/web: data.tls.key: the private key does not belong") ||
		got["apps/far"] != "Secret edge/web: has a problem, which is reported for that object itself" {
		t.Errorf("%v", got)
	}
	s.Step(at(0, certificate(t, 6, false)))
	if all := s.inventory.misused(); len(all) > 0 {
		t.Errorf("after it was mended: %v", all)
	}
}
