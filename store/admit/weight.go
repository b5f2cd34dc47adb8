package admit

import (
	"encoding/json"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/store/scan"
)

// Bounds of a review, whatever it is about. A value decodes to some 300 bytes, however few it has in JSON. etcd takes no object of 1.5 MiB.
const (
	maxValues = 200_000 // JSON values, of object, oldObject and all else
	maxObject = 3 << 20 // bytes of object, and of oldObject
	maxBeside = 10_000  // JSON values beside both, such as a user's groups
)

// A review with more than one of these is large: large ones wait for one another, so that of all webhooks' reviews few are.
const (
	largeValues = 5000
	largeBytes  = 256 << 10
)

// weight sums up a review before it is decoded.
type weight struct {
	namespace string // of the request
	values    int
	objects   int // of values: those of object and oldObject
	object    int // bytes of the larger of both
	bytes     int // of all
}

var errBeside = fmt.Errorf("the AdmissionReview has more than %d JSON values beside its objects", maxBeside)

// weigh scans a review. An error: it is not JSON, is nested too deeply, or has too much beside its objects.
func weigh(body []byte) (w weight, err error) {
	w.bytes = len(body)
	s := scan.New(body)
	if s.Next() == '{' {
		err = s.Object(func(key string) error {
			if key == "request" && s.Next() == '{' {
				return w.request(s)
			}
			return w.beside(s)
		})
	} else {
		err = s.Skip()
	}
	if err == nil {
		err = s.End()
	}
	w.values = s.Counted()
	return w, err
}

// request scans the request of a review.
func (w *weight) request(s *scan.Scanner) error {
	return s.Object(func(key string) error {
		switch key {
		case "object", "oldObject":
			before := s.Counted()
			err := s.Skip()
			w.objects += s.Counted() - before
			w.object = max(w.object, len(s.Skipped()))
			return err
		case "namespace":
			if err := w.beside(s); err != nil {
				return err
			}
			_ = json.Unmarshal(s.Skipped(), &w.namespace) // decoding tells what is no string
			return nil
		}
		return w.beside(s)
	})
}

// beside skips what is of no object.
func (w *weight) beside(s *scan.Scanner) error {
	if err := s.Skip(); err != nil {
		return err
	}
	if s.Counted()-w.objects > maxBeside {
		return errBeside
	}
	return nil
}

// large says whether a review waits for others like it.
func (w weight) large() bool { return w.values > largeValues || w.bytes > largeBytes }

// tooHeavy says why the objects of a review must not be decoded; nil: they may be.
func (w weight) tooHeavy() error {
	switch {
	case w.values > maxValues:
		return fmt.Errorf("the object has more than %d JSON values (together with the one before it, where it is updated)", maxValues)
	case w.object > maxObject:
		return fmt.Errorf("the object has more than %d bytes", maxObject)
	}
	return nil
}

// Chooser is a Handler that has nothing to say of some objects, which are admitted however heavy they are.
type Chooser interface {
	// Concerns says whether the handler would judge or change the object of a request. The object may be of any weight: no more than its
	// head is decoded. The request is not kept.
	Concerns(r *admissionv1.AdmissionRequest) bool
}

// unread answers a review whose objects are not decoded.
func unread(h Handler, r *admissionv1.AdmissionRequest, why error) *admissionv1.AdmissionResponse {
	if c, is := h.(Chooser); is && !c.Concerns(r) {
		return Allow()
	}
	no := Refuse(metav1.StatusReasonRequestEntityTooLarge, why.Error())
	no.Result.Code = http.StatusRequestEntityTooLarge
	return no
}
