package cloudtasks

import (
	"encoding/base64"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Errors whose code and text are recorded from the real service.
var (
	errNoQueue     = status.Error(codes.NotFound, "Queue does not exist. If you just created the queue, wait at least a minute for the queue to initialize.")
	errNoEntity    = status.Error(codes.NotFound, "Requested entity was not found.")
	errTaskGone    = status.Error(codes.NotFound, "The task no longer exists, though a task with this name existed recently. The task either successfully completed or was deleted.")
	errTaskExists  = status.Error(codes.AlreadyExists, "Requested entity already exists")
	errQueueExists = status.Error(codes.AlreadyExists, "Queue already exists")
	errQueueRecent = status.Error(codes.FailedPrecondition, "The queue cannot be created because a queue with this name existed too recently.")
	errTooLarge    = status.Error(codes.InvalidArgument, "Task size too large")
)

const docsRoot = "https://cloud.google.com/tasks/docs/reference/rest/v2/projects.locations.queues"

// Name formats. Source: comments of Queue.name and Task.name.
var (
	locationFormat = regexp.MustCompile(`^projects/[A-Za-z0-9:.-]+/locations/[A-Za-z0-9-]+$`)
	queueFormat    = regexp.MustCompile(`^projects/[A-Za-z0-9:.-]+/locations/[A-Za-z0-9-]+/queues/[A-Za-z0-9-]{1,100}$`)
	taskIDFormat   = regexp.MustCompile(`^[A-Za-z0-9_-]{1,500}$`)
)

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

func unsupported(what string) error {
	return status.Errorf(codes.Unimplemented, "the Cloud Tasks emulator does not support %s", what)
}

// invalidWithHelp is INVALID_ARGUMENT with the link the service adds for names.
func invalidWithHelp(text, description, url string) error {
	plain := status.New(codes.InvalidArgument, text)
	help := &errdetails.Help{Links: []*errdetails.Help_Link{{Description: description, Url: url}}}
	if detailed, err := plain.WithDetails(help); err == nil {
		return detailed.Err()
	}
	return plain.Err()
}

// checkLocation refuses a parent of queues that is no location's name. The
// service looks the project up and answers PERMISSION_DENIED; there are no
// projects here.
func checkLocation(parent string) error {
	if !locationFormat.MatchString(parent) {
		return invalid("Invalid resource field value in the request.")
	}
	return nil
}

// checkQueue refuses a name that is not the full name of a queue.
func checkQueue(name string) error {
	if !queueFormat.MatchString(name) {
		return invalidWithHelp(
			`Queue name must be formatted: "projects/<PROJECT_ID>/locations/<LOCATION_ID>/queues/<QUEUE_ID>".`,
			"Definition of queue name", docsRoot+"#Queue.FIELDS.name")
	}
	return nil
}

// splitTask splits a task's full name into its queue's full name and its id.
func splitTask(name string) (queue, id string, err error) {
	queue, id, found := strings.Cut(name, "/tasks/")
	if !found || !queueFormat.MatchString(queue) {
		return "", "", invalid(`Task name must be formatted: "projects/<PROJECT_ID>/locations/<LOCATION_ID>/queues/<QUEUE_ID>/tasks/<TASK_ID>".`)
	}
	if !taskIDFormat.MatchString(id) {
		return "", "", invalidWithHelp(
			`Task ID "`+id+`" can contain only letters ([A-Za-z]), numbers ([0-9]), hyphens (-), or underscores (_). Task ID must between 1 and 500 characters.`,
			"Definition of task ID", docsRoot+".tasks#Task.FIELDS.name")
	}
	return queue, id, nil
}

// page cuts one page out of sorted names. The token names the last entry of the
// page before, so entries added or removed between two pages shift nothing. Size
// zero or above largest means largest.
func page(names []string, size, largest int, token string) (cut []string, next string, err error) {
	if size < 0 {
		return nil, "", invalid("page_size cannot be negative.")
	}
	if size == 0 || size > largest {
		size = largest
	}
	if token != "" {
		last, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil {
			return nil, "", invalid("page_token is not one that was returned.")
		}
		at, found := slices.BinarySearch(names, string(last))
		if found {
			at++
		}
		names = names[at:]
	}
	if len(names) <= size {
		return names, "", nil
	}
	cut = names[:size]
	return cut, base64.RawURLEncoding.EncodeToString([]byte(cut[size-1])), nil
}

// burntNames remembers names that cannot be used again yet. All names of one
// value burn equally long, so they come free in the order they were burnt.
type burntNames struct {
	until map[string]time.Time
	order []string
}

// burn forgets the names that are free again, and blocks one for window from now; a
// window not above zero blocks nothing.
func (b *burntNames) burn(name string, now time.Time, window time.Duration) {
	for len(b.order) > 0 && !now.Before(b.until[b.order[0]]) {
		delete(b.until, b.order[0])
		b.order = b.order[1:]
	}
	if window <= 0 {
		return
	}
	if b.until == nil {
		b.until = make(map[string]time.Time)
	}
	b.until[name] = now.Add(window)
	b.order = append(b.order, name)
}

// has tells whether the name is still blocked.
func (b *burntNames) has(name string, now time.Time) bool {
	until, found := b.until[name]
	return found && now.Before(until)
}
