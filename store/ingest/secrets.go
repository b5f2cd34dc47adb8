package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

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
	// Anew seals again the private keys of stored records that are sealed under a key encryption key of before, at most so
	// many of them. What was sealed counts whatever the error.
	Reencrypt(ctx context.Context, stored []*model.Secret, most int) (map[*model.Secret][]byte, error)
}

// errNoSealer is why Secrets do not apply where there is no Sealer.
var errNoSealer = errors.New("this process has no key encryption key (--kek)")

// Draft is a Secret whose private key is not sealed yet. It is no record, and goes nowhere but to a Sealer.
type Draft struct {
	Record  *model.Secret // without its key
	Private model.PrivateKey
	Stored  *model.SecretSpec // nil: there is none, or it does not decode
	heard   time.Time
}

// The events and effects of sealing.
type (
	// Seal: seal the drafts. Again: some could not be sealed the last time, pause first.
	Seal struct {
		Epoch  kv.Epoch
		Drafts []*Draft
		Again  bool
	}
	// Sealed answers Seal, draft by draft: a record, or why there is none.
	Sealed struct {
		Epoch   kv.Epoch
		Drafts  []*Draft
		Records []model.Record
		Errors  []error
	}
)

func (Seal) effect()  {}
func (Sealed) event() {}

// draft takes the records of an object that has a private key: they are wanted once they are sealed.
func (w *world) draft(private model.PrivateKey, records []model.Record) {
	for _, r := range records {
		w.drafts[r.Meta().Key] = &Draft{Record: r.(*model.Secret), Private: private, heard: w.heard}
	}
}

// redraft makes drafts of all Secrets again: what they are compared with is another.
func (s *State) redraft() {
	s.heard = time.Time{}
	s.sealing, s.resealing = false, false
	clear(s.unsealed)
	for _, e := range s.objects {
		if len(e.private) > 0 {
			for _, r := range e.records {
				delete(s.want, r.Meta().Key)
			}
			s.draft(e.private, e.records)
		}
	}
}

// seal asks for what is to be sealed, unless that is under way.
func (s *State) seal() []Effect {
	if s.phase != ready && s.phase != writing || len(s.drafts) == 0 || s.sealing {
		return nil
	}
	s.sealing = true
	drafts := make([]*Draft, 0, len(s.drafts))
	for _, key := range slices.SortedFunc(maps.Keys(s.drafts), model.Key.Compare) {
		d := *s.drafts[key] // a copy: the stored one may change while it is sealed
		if d.Stored = nil; s.secrets[key] != nil {
			d.Stored = s.secrets[key].Spec
		}
		s.drafts[key] = &d
		drafts = append(drafts, &d)
	}
	return []Effect{Seal{Epoch: s.epoch, Drafts: drafts, Again: s.resealing}}
}

// sealed takes over what was sealed, where it is still what is wanted.
func (s *State) sealed(e Sealed) {
	s.sealing, s.resealing = false, false
	changed, since := map[model.Key]bool{}, time.Time{}
	for i, d := range e.Drafts {
		key := d.Record.Key
		if s.drafts[key] != d {
			continue
		}
		if err := e.Errors[i]; err != nil {
			s.resealing = true
			s.unsealed[key] = object.Problem{ID: s.ownerOf(key), Code: problem.Pending, Severity: problem.Error, Message: fmt.Sprintf("cannot be sealed: %v: what was stored before stands", err)}
			continue
		}
		delete(s.drafts, key)
		delete(s.unsealed, key)
		s.want[key] = e.Records[i]
		changed[key], since = true, earlier(since, d.heard)
	}
	s.enqueue(changed, since)
}

// sealAll is what the loop does for Seal.
func sealAll(ctx context.Context, sealer Sealer, e Seal) Sealed {
	out := Sealed{Epoch: e.Epoch, Drafts: e.Drafts, Records: make([]model.Record, len(e.Drafts)), Errors: make([]error, len(e.Drafts))}
	var away error // the sealer's: what comes after it is not tried, or each would wait for a provider that does not answer
	if sealer == nil {
		away = errNoSealer
	}
	for i, d := range e.Drafts {
		if out.Errors[i] = away; away != nil {
			continue
		}
		sealed, mac, err := sealer.Seal(ctx, d.Record.Key, d.Private, d.Stored)
		if err != nil {
			away, out.Errors[i] = err, err
			continue
		}
		public := d.Record.Spec
		out.Records[i], out.Errors[i] = model.New(d.Record.Key, d.Record.Created, &model.SecretSpec{Chain: public.Chain,
			Ocsp: public.Ocsp, Trust: public.Trust, Crl: public.Crl, Key: sealed, Mac: mac})
	}
	return out
}
