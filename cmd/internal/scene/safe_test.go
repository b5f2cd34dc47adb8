package scene

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"navarch.io/navarch/ca/seal"
	"navarch.io/navarch/ca/vault"
	"navarch.io/navarch/push/delta"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/origin"
)

// safe is the key encryption key of a pipeline, which may be away, and the folder sealing/ of its store. Owned by the
// scene's goroutine, but for the provider.
type safe struct {
	seal.Provider
	away  atomic.Bool
	blobs map[string][]byte
	keys  [][]byte // every private key that was ever in the folder, in PEM
}

func newSafe(dir string) (*safe, *current, error) {
	file, err := seal.NewFile(dir)
	if err != nil {
		return nil, nil, err
	}
	s := &safe{Provider: file, blobs: map[string][]byte{}}
	v, err := s.open()
	c := &current{}
	c.Store(v)
	return s, c, err
}

// current is the vault of the process that runs at present.
type current struct{ atomic.Pointer[vault.Vault] }

func (c *current) Open(ctx context.Context, key model.Key, spec *model.SecretSpec) (model.PrivateKey, error) {
	return c.Load().Open(ctx, key, spec)
}

// open makes a vault that has unwrapped nothing yet, as that of a process that has just started.
func (s *safe) open() (*vault.Vault, error) {
	sealer, err := seal.New(s)
	if err != nil {
		return nil, err
	}
	return vault.New(vault.Config{Sealer: sealer, Mesh: "scene", Store: s})
}

func (s *safe) Unwrap(ctx context.Context, w seal.Wrapped) (seal.Secret, error) {
	if s.away.Load() {
		return nil, seal.ErrUnavailable
	}
	return s.Provider.Unwrap(ctx, w)
}

func (s *safe) Wrap(ctx context.Context, key seal.Secret) (seal.Wrapped, error) {
	if s.away.Load() {
		return seal.Wrapped{}, seal.ErrUnavailable
	}
	return s.Provider.Wrap(ctx, key)
}

func (s *safe) Blobs(context.Context, string, int64) (all []kv.Blob, _ int64, _ error) {
	for path, raw := range s.blobs {
		all = append(all, kv.Blob{Path: path, Raw: raw})
	}
	return all, 1, nil
}

func (s *safe) ChangeBlobs(_ context.Context, c kv.BlobChange) (int64, error) {
	for _, b := range c.Put {
		s.blobs[b.Path] = b.Raw
	}
	return 1, nil
}

// seal does what the ingester's loop does for Seal.
func (w *pipeline) seal(e ingest.Seal) ingest.Sealed {
	out := ingest.Sealed{Epoch: e.Epoch, Secrets: e.Secrets, Records: make([]model.Record, len(e.Secrets)), Errors: make([]error, len(e.Secrets))}
	for i, d := range e.Secrets {
		key, mac, err := w.vault.Load().Seal(context.Background(), d.Record.Key, d.Private, d.Stored)
		if err == nil {
			p := d.Record.Spec
			out.Records[i], err = model.New(d.Record.Key, d.Record.Created, &model.SecretSpec{Chain: p.Chain, Ocsp: p.Ocsp, Trust: p.Trust, Crl: p.Crl, Key: key, Mac: mac})
		}
		out.Errors[i] = err
	}
	return out
}

// issue writes a Secret of fresh key material into the folder.
func (s *stage) issue(args []string) (string, error) {
	if len(args) < 3 {
		return "", errors.New("want FILE NAMESPACE NAME [trust] [type=TYPE]")
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"site.test"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return "", err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return "", err
	}
	cert, key := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
	s.pipeline.safe.keys = append(s.pipeline.safe.keys, key)
	encode := base64.StdEncoding.EncodeToString
	data := fmt.Sprintf("{tls.crt: %s, tls.key: %s}", encode(cert), encode(key))
	if slices.Contains(args[3:], "trust") {
		data = fmt.Sprintf("{tls.crt: %s, tls.key: %s, ca.crt: %s}", encode(cert), encode(key), encode(cert))
	}
	text := fmt.Sprintf("apiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\nmetadata: {name: %s, namespace: %s}\ndata: %s\n", args[2], args[1], data)
	return "", s.pipeline.put(map[string][]byte{args[0]: []byte(text)})
}

// kek removes the key encryption key, or restores it; decrypted keys are forgotten.
func (s *stage) kek(args []string) (string, error) {
	if len(args) != 1 || args[0] != "away" && args[0] != "back" {
		return "", errors.New("want away or back")
	}
	s.pipeline.safe.away.Store(args[0] == "away")
	fresh, err := s.pipeline.safe.open()
	if err != nil {
		return "", err
	}
	s.pipeline.vault.Store(fresh)
	if args[0] == "back" {
		s.pipeline.do(s.pipeline.resealing)
		s.pipeline.resealing = nil
	}
	return "", nil
}

// pause advances the time, as far as retries depend on it.
func (s *stage) pause(args []string) (string, error) {
	if len(args) != 1 {
		return "", errors.New("want DURATION")
	}
	d, err := time.ParseDuration(args[0])
	if err != nil {
		return "", err
	}
	time.Sleep(d) // of the scene's own clock
	s.take()
	return "", nil
}

// stored prints what the store has of a Secret.
func (s *stage) stored(args []string) (string, error) {
	if len(args) == 1 {
		args = append(args, "")
	}
	if len(args) != 2 {
		return "", errors.New("want NAMESPACE/NAME [CLUSTER]")
	}
	namespace, name, _ := strings.Cut(args[0], "/")
	key := model.Key{Kind: model.KindSecret, Namespace: namespace, Name: name, Origin: origin.New(args[1], "files")}
	raw, ok := s.pipeline.stored[key]
	if !ok {
		return "", fmt.Errorf("there is no %v", key)
	}
	r, err := model.Decode(key, raw)
	if err != nil {
		return "", err
	}
	spec, count := r.(*model.Secret).Spec, func(b []byte) int { return bytes.Count(b, []byte("BEGIN CERTIFICATE")) }
	return fmt.Sprintf("chain %d trust %d sealed %v mac %v\n", count(spec.Chain), count(spec.Trust), len(spec.Key) > 100, len(spec.Mac) == 32), nil
}

// ask changes a proxy's subscriptions to Secrets: NAME subscribes, -NAME unsubscribes.
func (s *stage) ask(args []string) (string, error) {
	a, err := s.actor(args)
	if err != nil {
		return "", err
	}
	var add, drop []string
	for _, name := range args[1:] {
		if gone, is := strings.CutPrefix(name, "-"); is {
			drop = append(drop, gone)
			delete(a.wanted[xds.Secret], gone)
			delete(a.held[xds.Secret], gone)
			continue
		}
		add = append(add, name)
		a.wanted[xds.Secret][name], a.fresh[xds.Secret][name] = true, true
	}
	a.asked[xds.Secret] = true
	a.joined.SubscribeSecrets(context.Background(), add, nil)
	a.state.Target(a.target())
	a.send(delta.Request{Type: xds.Secret, Subscribe: slices.Values(add), Unsubscribe: slices.Values(drop)})
	a.deliver()
	a.joined.SubscribeSecrets(context.Background(), nil, drop)
	return "", s.settle()
}

// leaks returns the places where a private key of the folder is readable: in the store, or in the text of a problem.
func (s *stage) leaks() (out []string) {
	everything := map[string]string{"the problems": strings.Join(s.pipeline.problemLines(), "\n")}
	for key, raw := range s.pipeline.stored {
		everything[key.String()] = string(raw)
	}
	for path, raw := range s.pipeline.safe.blobs {
		everything[path] = string(raw)
	}
	for where, text := range everything {
		for _, key := range s.pipeline.safe.keys {
			block, _ := pem.Decode(key)
			for _, part := range []string{strings.Split(string(key), "\n")[1], string(block.Bytes), string(block.Bytes[36:68])} { // the last: the scalar
				if strings.Contains(text, part) {
					out = append(out, where+" shows a private key")
				}
			}
		}
	}
	return out
}
