package admit

import (
	"encoding/json"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/store/scan"
)

// Bounds of every AdmissionReview. A decoded JSON value occupies about 300 bytes, even if it is short. etcd limits an
// object to 1.5 MiB.
const (
	maxValues = 100_000 // JSON values of object, and of oldObject
	maxObject = 3 << 20 // bytes of object, and of oldObject
	maxBeside = 10_000  // JSON values outside of object and oldObject, such as a user's groups
)

// A review above one of these sizes is large. Each webhook processes large reviews one at a time.
const (
	largeValues = 5000
	largeBytes  = 256 << 10
)

// weight describes a review before it is decoded.
type weight struct {
	namespace string // of the request
	values    int
	objects   int // values in object and oldObject
	most      int // values of the larger of object and oldObject
	object    int // bytes of the larger of object and oldObject
	bytes     int // of the whole review
}

var errBeside = fmt.Errorf("the AdmissionReview has more than %d JSON values beside its objects", maxBeside)

// weigh scans a review without decoding it. An error means that the body is not JSON, is nested too deeply, or has more
// than maxBeside values outside of the objects.
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
	values := map[string]int{}
	return s.Object(func(key string) error {
		switch key {
		case "object", "oldObject":
			before := s.Counted()
			err := s.Skip()
			values[key] += s.Counted() - before // a repeated key is decoded again
			w.objects, w.most = values["object"]+values["oldObject"], max(w.most, values[key])
			w.object = max(w.object, len(s.Skipped()))
			return err
		case "namespace":
			if err := w.beside(s); err != nil {
				return err
			}
			_ = json.Unmarshal(s.Skipped(), &w.namespace) // an invalid namespace is reported later, by decode
			return nil
		}
		return w.beside(s)
	})
}

// beside skips a value outside of the objects. It fails with errBeside if there are more than maxBeside such values.
func (w *weight) beside(s *scan.Scanner) error {
	if err := s.Skip(); err != nil {
		return err
	}
	if s.Counted()-w.objects > maxBeside {
		return errBeside
	}
	return nil
}

// large reports whether a review exceeds largeValues or largeBytes.
func (w weight) large() bool { return w.values > largeValues || w.bytes > largeBytes }

// tooHeavy returns an error with the bound that the objects of a review exceed. It returns nil if the objects may be
// decoded.
func (w weight) tooHeavy() error {
	switch {
	case w.most > maxValues:
		return fmt.Errorf("the object, or its previous version in an update, has more than %d JSON values", maxValues)
	case w.object > maxObject:
		return fmt.Errorf("the object has more than %d bytes", maxObject)
	}
	return nil
}

// Chooser is an optional interface of Handlers that ignore some objects. The Server admits the ignored objects even if
// they are too heavy to decode.
type Chooser interface {
	// Concerns reports whether the handler would check or change the object of a request. The Server calls it only for
	// objects that are too heavy. Concerns must therefore decode at most the head of the object, and must not retain
	// the request.
	Concerns(r *admissionv1.AdmissionRequest) bool
}

// unread answers a review with objects that are too heavy to decode. If the handler is a Chooser whose method Concerns
// returns false, the review is admitted. In all other cases the review is refused with code 413.
func unread(h Handler, r *admissionv1.AdmissionRequest, why error) *admissionv1.AdmissionResponse {
	if c, is := h.(Chooser); is && !c.Concerns(r) {
		return Allow()
	}
	no := Refuse(metav1.StatusReasonRequestEntityTooLarge, why.Error())
	no.Result.Code = http.StatusRequestEntityTooLarge
	return no
}
