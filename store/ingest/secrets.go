package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// Sealer makes private keys unreadable before they are written. Safe for concurrent use.
type Sealer interface {
	// Seal gives a sealed private key and its keyed MAC, for the record of a key. stored is what the store has of that
	// record, or nil: where its MAC says that it is the same private key, its sealed form is given back, so that nothing
	// differs. No error shows the private key.
	Seal(ctx context.Context, key model.Key, private model.PrivateKey, stored *model.SecretSpec) (sealed, mac []byte, err error)
	// Reencrypt seals again the private keys of stored records that are sealed under a key encryption key of before, at most so
	// many of them. What was sealed counts whatever the error.
	Reencrypt(ctx context.Context, stored []*model.Secret, most int) (map[*model.Secret][]byte, error)
}

// errNoSealer is why Secrets do not apply where there is no Sealer.
var errNoSealer = errors.New("this process has no key encryption key (--kek)")

// UnsealedRecord is a Secret whose private key is not sealed yet. It is no record, and goes nowhere but to a Sealer.
type UnsealedRecord struct {
	Record  *model.Secret // without its key
	Private model.PrivateKey
	Stored  *model.SecretSpec // nil: there is none, or it does not decode
	heard   time.Time
}

// The events and effects of sealing.
type (
	// Seal: seal the awaitingSeal. Again: some could not be sealed the last time, pause first.
	Seal struct {
		Epoch   kv.Epoch
		Secrets []*UnsealedRecord
		Again   bool
	}
	// Sealed answers Seal, record by record: a record, or why there is none.
	Sealed struct {
		Epoch   kv.Epoch
		Secrets []*UnsealedRecord
		Records []model.Record
		Errors  []error
	}
)

func (Seal) effect()  {}
func (Sealed) event() {}

// awaitSeal takes the records of an object that has a private key: they are wanted once they are sealed.
func (w *inventory) awaitSeal(private model.PrivateKey, records []model.Record) {
	for _, r := range records {
		w.awaitingSeal[r.Meta().Key] = &UnsealedRecord{Record: r.(*model.Secret), Private: private, heard: w.heard}
	}
}

// sealAgain makes awaitingSeal of all Secrets again: what they are compared with is another.
func (s *State) sealAgain() {
	s.heard = time.Time{}
	s.sealing, s.resealing = false, false
	clear(s.unsealed)
	for _, e := range s.objects {
		if private := e.few().private; len(private) > 0 {
			for _, r := range e.records {
				delete(s.want, r.Meta().Key)
			}
			s.awaitSeal(private, e.records)
		}
	}
}

// seal asks for what is to be sealed, unless that is under way.
func (s *State) seal() []Effect {
	if s.phase != ready && s.phase != writing || len(s.awaitingSeal) == 0 || s.sealing {
		return nil
	}
	s.sealing = true
	awaitingSeal := make([]*UnsealedRecord, 0, len(s.awaitingSeal))
	for _, key := range slices.SortedFunc(maps.Keys(s.awaitingSeal), model.Key.Compare) {
		d := *s.awaitingSeal[key] // a copy: the stored one may change while it is sealed
		if d.Stored = nil; s.secrets[key] != nil {
			d.Stored = s.secrets[key].Spec
		}
		s.awaitingSeal[key] = &d
		awaitingSeal = append(awaitingSeal, &d)
	}
	return []Effect{Seal{Epoch: s.epoch, Secrets: awaitingSeal, Again: s.resealing}}
}

// sealed takes over what was sealed, where it is still what is wanted.
func (s *State) sealed(e Sealed) {
	s.sealing, s.resealing = false, false
	changed, since := map[model.Key]bool{}, time.Time{}
	for i, d := range e.Secrets {
		key := d.Record.Key
		if s.awaitingSeal[key] != d {
			continue
		}
		if err := e.Errors[i]; err != nil {
			s.resealing = true
			s.unsealed[key] = object.Problem{ID: s.sourceOf(key), Code: problem.Pending, Severity: problem.Error, Message: fmt.Sprintf("cannot be sealed: %v: what was stored before stands", err)}
			continue
		}
		delete(s.awaitingSeal, key)
		delete(s.unsealed, key)
		s.want[key] = e.Records[i]
		changed[key], since = true, earlier(since, d.heard)
	}
	s.enqueue(changed, since)
}

// sealAll is what the loop does for Seal.
func sealAll(ctx context.Context, sealer Sealer, e Seal) Sealed {
	out := Sealed{Epoch: e.Epoch, Secrets: e.Secrets, Records: make([]model.Record, len(e.Secrets)), Errors: make([]error, len(e.Secrets))}
	var away error // the sealer's: what comes after it is not tried, or each would wait for a provider that does not answer
	if sealer == nil {
		away = errNoSealer
	}
	for i, d := range e.Secrets {
		if out.Errors[i] = away; away != nil {
			continue
		}
		sealed, mac, err := sealer.Seal(ctx, d.Record.Key, d.Private, d.Stored)
		if err != nil {
			away, out.Errors[i] = err, err
			continue
		}
		out.Records[i], out.Errors[i] = sealedAs(d.Record, sealed, mac)
	}
	return out
}

// sealedAs is a record with another sealed key, and its MAC.
func sealedAs(r *model.Secret, key, mac []byte) (model.Record, error) {
	spec := proto.CloneOf(r.Spec)
	spec.Key, spec.Mac = key, mac
	return model.New(r.Key, r.Created, spec)
}
