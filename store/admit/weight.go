package admit

import (
	"encoding/json"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/store/scan"
)

// Bounds of every review. A JSON value decodes to about 300 bytes, however short it is. etcd accepts no object above
// 1.5 MiB.
const (
	maxValues = 200_000 // JSON values in total
	maxObject = 3 << 20 // bytes of object, and of oldObject
	maxBeside = 10_000  // JSON values outside of both, such as a user's groups
)

// A review above one of these is large. Large reviews wait for one another, so that few of them are in progress at a
// time.
const (
	largeValues = 5000
	largeBytes  = 256 << 10
)

// weight describes a review before it is decoded.
type weight struct {
	namespace string // of the request
	values    int
	objects   int // values in object and oldObject
	object    int // bytes of the larger of both
	bytes     int // of the whole review
}

var errBeside = fmt.Errorf("the AdmissionReview has more than %d JSON values beside its objects", maxBeside)

// weigh scans a review. Errors: it is not JSON, it is nested too deeply, or it has too many values beside its objects.
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
			_ = json.Unmarshal(s.Skipped(), &w.namespace) // an invalid namespace is an error of decode
			return nil
		}
		return w.beside(s)
	})
}

// beside skips a value outside of the objects. errBeside: there are too many.
func (w *weight) beside(s *scan.Scanner) error {
	if err := s.Skip(); err != nil {
		return err
	}
	if s.Counted()-w.objects > maxBeside {
		return errBeside
	}
	return nil
}

// large reports whether a review waits for other large ones.
func (w weight) large() bool { return w.values > largeValues || w.bytes > largeBytes }

// tooHeavy returns why the objects of a review must not be decoded; nil allows it.
func (w weight) tooHeavy() error {
	switch {
	case w.values > maxValues:
		return fmt.Errorf("the object has more than %d JSON values (together with the one before it, where it is updated)", maxValues)
	case w.object > maxObject:
		return fmt.Errorf("the object has more than %d bytes", maxObject)
	}
	return nil
}

// Chooser is a Handler that ignores some objects. Those are admitted however heavy they are.
type Chooser interface {
	// Concerns reports whether the handler would check or change the object of a request. It decodes the head of the
	// object at most, because the object may be of any weight. It does not keep the request.
	Concerns(r *admissionv1.AdmissionRequest) bool
}

// unread answers a review whose objects are too heavy to decode.
func unread(h Handler, r *admissionv1.AdmissionRequest, why error) *admissionv1.AdmissionResponse {
	if c, is := h.(Chooser); is && !c.Concerns(r) {
		return Allow()
	}
	no := Refuse(metav1.StatusReasonRequestEntityTooLarge, why.Error())
	no.Result.Code = http.StatusRequestEntityTooLarge
	return no
}
