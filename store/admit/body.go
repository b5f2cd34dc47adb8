package admit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"navarch.io/navarch/store/scan"
)

// firstBytes is the number of bytes that the room (the limit for reviews in progress) counts for a review before its
// body arrives. Most reviews are not longer. Once firstBytes have arrived, the same number is counted for the next
// piece of the body, and so on.
const firstBytes = 32 << 10

// endless is the maximum number of commas in a body. A body with more commas is refused while it is read, even if the
// handler ignores its object (Chooser).
const endless = 4 * maxValues

// free contains unused buffers for pieces of bodies, which are reused.
var free = sync.Pool{New: func() any { return new([firstBytes]byte) }}

// read reads the body of a request in pieces, so that memory is only used for bytes that have arrived. It returns
// either the body or a refusal.
func (s *Server) read(ctx context.Context, w http.ResponseWriter, r *http.Request, held *claim) ([]byte, *refusal) {
	announced := r.ContentLength
	if announced > s.MaxBody {
		return nil, tooLarge(s.MaxBody)
	}
	if announced < 0 { // the length is not announced
		announced = s.MaxBody
	}
	var pieces [][]byte
	defer func() {
		for _, p := range pieces {
			free.Put((*[firstBytes]byte)(p[:firstBytes]))
		}
	}()
	head := http.NewResponseController(w) // writers in tests have no deadlines
	var came scan.Separators
	for left, total := s.BodyTime, int64(0); ; {
		at := len(pieces) - 1
		if at < 0 || len(pieces[at]) == firstBytes {
			if next := min(firstBytes, announced-total); next > 0 && s.room.take(ctx, held, next) != nil {
				return nil, noRoom
			}
			pieces = append(pieces, free.Get().(*[firstBytes]byte)[:0])
			at++
		}
		began, before := time.Now(), len(pieces[at])
		_ = head.SetReadDeadline(began.Add(left))
		n, err := r.Body.Read(pieces[at][before:firstBytes])
		left -= time.Since(began)
		pieces[at] = pieces[at][:before+n]
		came.Add(pieces[at][before:])
		switch total += int64(n); {
		case came.Commas > endless:
			w.Header().Set("Connection", "close")
			return nil, &refusal{http.StatusRequestEntityTooLarge, "values", fmt.Errorf("the AdmissionReview has more than %d JSON values", endless)}
		case total > s.MaxBody:
			return nil, tooLarge(s.MaxBody)
		case errors.Is(err, io.EOF):
			_ = head.SetReadDeadline(time.Time{}) // otherwise the deadline stays while net/http discards the rest of the body
			return slices.Concat(pieces...), nil
		case errors.Is(err, os.ErrDeadlineExceeded) || left <= 0:
			w.Header().Set("Connection", "close")
			return nil, &refusal{http.StatusRequestTimeout, "body", fmt.Errorf("the body did not arrive within %v", s.BodyTime)}
		case err != nil:
			return nil, &refusal{http.StatusBadRequest, "body", fmt.Errorf("the body cannot be read: %w", err)}
		}
	}
}

func tooLarge(limit int64) *refusal {
	return &refusal{http.StatusRequestEntityTooLarge, "size", fmt.Errorf("the AdmissionReview has more than %d bytes", limit)}
}
