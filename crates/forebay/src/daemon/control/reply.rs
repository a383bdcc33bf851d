//! What a request of the control socket ends in: JSON, or the refusal that a handler's `?` returns.

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use crate::daemon::api::ApiError;

/// What a handler answers.
pub(in crate::daemon) type Reply<T> = Result<Json<T>, Refusal>;

/// A request is not carried out.
#[derive(Debug)]
pub(in crate::daemon) struct Refusal {
    status: StatusCode,
    error: String,
}

pub(in crate::daemon) fn refuse(status: StatusCode, error: String) -> Refusal {
    Refusal { status, error }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, Json(ApiError { error: self.error })).into_response()
    }
}

impl From<JsonRejection> for Refusal {
    fn from(wrong: JsonRejection) -> Refusal {
        refuse(StatusCode::BAD_REQUEST, wrong.body_text())
    }
}

impl From<QueryRejection> for Refusal {
    fn from(wrong: QueryRejection) -> Refusal {
        refuse(StatusCode::BAD_REQUEST, wrong.body_text())
    }
}
