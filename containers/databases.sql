-- Run once, by the PostgreSQL container when its volume is new.
CREATE DATABASE prefect;
CREATE DATABASE mlflow;
